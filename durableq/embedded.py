"""Embedded: a private real server with an append-only file, shared by a user's processes.

Only the finding, starting and stopping of it; talking to it is the clients' work. The server
process inherits a lock on its directory and so holds it for as long as it lives, however it ends:
whoever gets the lock knows that no server runs there, and starts one.
"""

import atexit
import contextlib
import fcntl
import hashlib
import logging
import os
import socket as sockets
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from durableq.errors import EmbeddedServerError
from durableq.program import find_program

START_SECONDS = 60.0
"""How long to wait for a server that starts: it loads about 400,000 jobs a second."""

MOST_STARTS = 3
_SOCKET_LIMIT = 100  # bytes; the system allows 107 on Linux, 103 on macOS

_log = logging.getLogger("durableq")


class Embedded:
    """The server whose data is in `home`. One object per process and directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.socket = _socket_path(home)
        self._users, self._found = 0, False
        self._guard = threading.Lock()

    @staticmethod
    def of_environment() -> "Embedded":
        """Return the server of the environment's DURABLEQ_HOME, or of the user's state directory.

        Raises EmbeddedServerError if DURABLEQ_EMBEDDED is "never".
        """
        if os.environ.get("DURABLEQ_EMBEDDED") == "never":
            raise EmbeddedServerError(
                "no server's URL was given, and DURABLEQ_EMBEDDED=never forbids the embedded "
                "server: set DURABLEQ_URL or pass redis="
            )
        given = os.environ.get("DURABLEQ_HOME")
        if given:
            return _server(Path(given).expanduser().absolute())
        state = Path(os.environ.get("XDG_STATE_HOME", ""))
        if not state.is_absolute():  # to be ignored then, says the XDG specification
            state = Path.home() / ".local" / "state"
        return _server(state / "durableq")

    @property
    def client_name(self) -> str:
        """How this process's connections are named, to be told from those of others."""
        return f"durableq-{os.getpid()}"

    def join(self) -> None:
        """Count a user of the server in this process."""
        with self._guard:
            self._users += 1

    def leave(self) -> None:
        """Count one user less; with the last one gone, stop the server if no process uses it."""
        with self._guard:
            self._users -= 1
            last = self._users == 0
        if last:
            self.stop_unused()

    def ready(self) -> None:
        """See to it that the server runs and answers: find it, or start it on its data.

        Raises EmbeddedServerError, with the remedy, if it cannot be started.
        """
        deadline, starts = time.monotonic() + START_SECONDS, 0
        with self._usable():
            for folder in (self.home, self.socket.parent):
                _check_owner(folder)  # of a server that answers, too: it may be anybody's
        while not self._answers():
            lock = self._lock()
            if lock is not None:
                try:
                    if starts == MOST_STARTS:
                        raise EmbeddedServerError(
                            f"the embedded server ends at its start: {self._tail()}"
                        )
                    self._start(lock)
                    starts += 1
                finally:
                    os.close(lock)
            elif time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"the embedded server runs but has not answered for {START_SECONDS:.0f} s: "
                    f"{self._tail()}"
                )
            else:
                time.sleep(0.005)
        self._found = True
        _announce(self.home)

    def stop_unused(self) -> None:
        """Stop the server, if this process used it, unless another one is connected to it."""
        if not self._found or not self.socket.exists():
            return
        others = []
        # One process at a time looks, after its own connections are gone; so the last one stops it.
        with _locked(self.home / "leaving"), self._admin() as admin:
            me = str(admin.client_id())
            for client in admin.client_list(_type="normal"):
                if client["name"] == self.client_name:
                    admin.client_kill_filter(_id=client["id"])
                elif client["id"] != me:
                    others.append(client)
            if not others:
                admin.shutdown(nosave=True)
        if not others:
            self._await_end()

    def stop(self) -> None:
        """Stop the server, whoever uses it; one that is just being started, too."""
        with contextlib.suppress(EmbeddedServerError):
            self.ready()
        with self._admin() as admin:
            admin.shutdown(nosave=True)
        self._await_end()

    @contextlib.contextmanager
    def _admin(self) -> Iterator[redis.Redis]:
        """Yield a client for the server; that it is gone is no error."""
        admin = redis.Redis(
            unix_socket_path=str(self.socket), socket_timeout=5, retry=Retry(NoBackoff(), 0)
        )
        with admin, contextlib.suppress(redis.RedisError, OSError):
            yield admin

    def _await_end(self) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(EmbeddedServerError):
                if (lock := self._lock()) is not None:
                    os.close(lock)
                    return
            time.sleep(0.005)

    @property
    def _log_path(self) -> Path:
        return self.home / "log"

    def _answers(self) -> bool:
        try:
            with sockets.socket(sockets.AF_UNIX) as probe:
                probe.settimeout(2)
                probe.connect(str(self.socket))
                probe.sendall(b"PING\r\n")
                return probe.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def _lock(self) -> int | None:
        """Return the lock on the directory, held, or None while a server has it."""
        with self._usable():
            _make_private(self.home)
            _make_private(self.socket.parent)
            names = os.listdir(self.home)
            if names and "lock" not in names:
                raise FileExistsError("it holds files of something else")
            lock = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Turn what is wrong with the directory into our error."""
        try:
            yield
        except OSError as error:
            raise EmbeddedServerError(
                f"the embedded server's directory {self.home} cannot be used ({error}): set "
                "DURABLEQ_HOME to one of your own, or DURABLEQ_URL to a server"
            ) from error

    def _start(self, lock: int) -> None:
        program = find_program()
        self.socket.unlink(missing_ok=True)
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.home),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "logfile": str(self._log_path),
            "daemonize": "no",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        with open(self._log_path, "ab") as output:
            # Started by a shell that ends at once, the server is nobody's child here: it outlives
            # us and leaves no zombie. In a session of its own it is spared a terminal's Ctrl-C.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "durableq", str(program), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.home,
                start_new_session=True,
                pass_fds=(lock,),
                check=True,
            )

    def _tail(self) -> str:
        """Return where the log is and how it ends."""
        try:
            lines = self._log_path.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return f"its log {self._log_path} ends with {lines[-1] if lines else 'nothing'!r}"


def _check_owner(folder: Path) -> None:
    if folder.exists() and folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")


def _make_private(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder)
    if not any(folder.iterdir()):
        folder.chmod(0o700)  # whoever made it; a folder with files in it is left as it is


@cache
def _announce(home: Path) -> None:
    _log.warning(
        "no server was given: using the embedded server in %s (DURABLEQ_URL names another)",
        home,
    )


@cache
def _server(home: Path) -> Embedded:
    server = Embedded(home)
    atexit.register(server.stop_unused)
    return server


def _socket_path(home: Path) -> Path:
    path = home / "socket"
    if len(os.fsencode(path)) <= _SOCKET_LIMIT:
        return path
    short = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"durableq-{os.getuid()}" / f"{short}.socket"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
