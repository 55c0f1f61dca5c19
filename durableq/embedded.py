"""Embedded: a private real server with an append-only file, shared by a user's processes.

Only the finding and stopping of it; launch.py starts it, home.py is its directory, and talking to
it is the clients' work. The server process inherits the lock on its directory and so holds it for
as long as it lives, however it ends: whoever gets the lock knows that no server runs there, and
starts one.
"""

import atexit
import contextlib
import os
import secrets
import socket as sockets
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from durableq import launch
from durableq.errors import EmbeddedServerError, InvalidArgument
from durableq.home import LOOK, Home

_ADMIN = "durableq-admin"
_LOOKS = 5
_NEXT_LOOK = 0.05  # seconds: a ping takes less than one millisecond of them
_sessions: dict[int, str] = {}
_servers: "dict[Path, Embedded]" = {}
_making = threading.Lock()


@dataclass(frozen=True, slots=True)
class Status:
    """What there is to know of an embedded server without starting it.

    `state` is "running", "loading", "silent" (it lives and does not answer) or "stopped". `kept`
    says whether it stays when its last user leaves. `connections` and `server`, the program's name
    and version, are those of a running one; `data_bytes` is what lies on disk.
    """

    state: str
    url: str
    home: str
    pid: int | None
    server: str | None
    connections: int | None
    kept: bool
    data_bytes: int


class Embedded:
    """The server whose data is in `folder`. One object per process and directory."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.socket = self.home.socket
        self._users = 0
        self._found = 0  # the process id that has used it: a fork of it may not have
        self._guard = threading.Lock()

    @staticmethod
    def of_environment() -> "Embedded":
        """Return the server of the environment's DURABLEQ_HOME, or of the user's state directory.

        Raises EmbeddedServerError if DURABLEQ_EMBEDDED is "never", InvalidArgument if it is
        anything else.
        """
        allowed = os.environ.get("DURABLEQ_EMBEDDED")
        if allowed == "never":
            raise EmbeddedServerError(
                "DURABLEQ_EMBEDDED=never forbids the embedded server, and no server's URL was "
                "given: set DURABLEQ_URL, or pass redis="
            )
        if allowed:  # who has mistyped it believes that it is forbidden
            raise InvalidArgument(
                f"DURABLEQ_EMBEDDED={allowed} is not known: it is never, or not set"
            )
        given = os.environ.get("DURABLEQ_HOME")
        try:
            if given:
                return _server(Path(given).expanduser().absolute())
            state = Path(os.environ.get("XDG_STATE_HOME", ""))
            if not state.is_absolute():  # to be ignored then, says the XDG specification
                state = Path.home() / ".local" / "state"
            return _server(state / "durableq")
        except RuntimeError as error:
            raise EmbeddedServerError(
                f"the embedded server has no directory ({error}): set DURABLEQ_HOME to one of your "
                "own, or DURABLEQ_URL to a server"
            ) from error

    @property
    def client_name(self) -> str:
        """How this process's connections are named, to be told from those of others."""
        # Containers may share process ids, so these alone do not do; a fork has one of its own.
        session = _sessions.setdefault(os.getpid(), secrets.token_hex(4))
        return f"durableq-{os.getpid()}-{session}"

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

    def ready(self, given_up: threading.Event | None = None) -> None:
        """See to it that the server runs and answers: find it, or start it on its data.

        Blocks while it loads; setting `given_up` ends that.
        Raises EmbeddedServerError, with the remedy, if it cannot be started; redis-py's
        ConnectionError if it takes no more connections.
        """
        self.home.check()
        launching = launch.Launch(self.home)
        while not (reply := self._ping()) or reply.startswith(b"-LOADING"):
            if given_up is not None and given_up.is_set():
                raise EmbeddedServerError("the call was given up while the server started")
            if reply:
                launching.loading()
            elif (lock := self.home.lock()) is not None:
                with lock:
                    launching.start(lock)
            else:
                launching.wait()
        launching.done()
        self._note()
        if reply.startswith(b"-ERR"):  # it lets nobody in: for a moment, perhaps
            raise redis.ConnectionError(f"the embedded server answers {reply[1:].decode().strip()}")

    def _note(self) -> None:
        """Take note that this process uses the server, and is to leave it at its end."""
        if self._found != os.getpid():
            self._found = os.getpid()
            multiprocessing = sys.modules.get("multiprocessing")
            if multiprocessing is not None and multiprocessing.parent_process() is not None:
                from multiprocessing.util import Finalize

                Finalize(None, self.stop_unused, exitpriority=0)  # its children skip atexit's

    def keep(self) -> None:
        """Start the server, or find it, and let it run until it is told to stop."""
        try:
            self.ready()
            with self.home.deciding():  # so that nobody is about to stop it
                self.home.kept = True
                self.ready()
        except redis.ConnectionError as error:
            raise EmbeddedServerError(str(error)) from error

    def stop_unused(self) -> None:
        """Stop the server, if this process used it, unless another one is connected to it."""
        with contextlib.suppress(EmbeddedServerError):  # whoever leaves has no use for it
            if self._found == os.getpid() and self.home.locked():
                self._stop_unused()

    def _stop_unused(self) -> None:
        self.home.check()
        pid, stopped = self.home.pid, False
        # One process at a time looks, after its own connections are gone; so the last one stops it.
        with self.home.deciding(), self._admin() as admin:
            if not self._others(admin) and not self.home.kept:
                admin.shutdown(nosave=True)
                stopped = True
        if stopped:
            self._await_end(pid)

    def _others(self, admin: redis.Redis) -> bool:
        """Tell whether other processes are connected; drop what is left of this one's."""
        # Without a name of ours it is a user's own client, which stays, or a mere ping.
        staying: set[str] | None = None
        for _ in range(_LOOKS):
            names: dict[str, str] = {}
            for client in admin.client_list():
                if client["name"] == self.client_name:
                    admin.client_kill_filter(_id=client["id"])
                elif client["name"] != _ADMIN:
                    names[client["id"]] = client["name"]
            if any(name.startswith("durableq-") for name in names.values()):
                return True
            staying = set(names) if staying is None else staying & set(names)
            if not staying:
                return False
            time.sleep(_NEXT_LOOK)
        return True

    def stop(self) -> None:
        """Stop the server, whoever uses it; one that is just being started, too.

        Raises EmbeddedServerError if it does not end. Who still uses it may start it again.
        """
        self.home.check()
        self.home.kept = False
        self._await_end(None, stopping=True)

    def status(self) -> Status:
        """Return what there is to know. Starts nothing, makes nothing.

        Raises EmbeddedServerError if the directory cannot be used.
        """
        state, server, pid, connections = "stopped", None, None, None
        if self.home.locked():
            self.home.check()
            reply, state, pid = self._ping(), "silent", self.home.pid
            if reply.startswith(b"-LOADING"):
                state = "loading"
            elif reply:
                state, server = "running", self.home.writer
                with self._admin() as admin:
                    connections = sum(client["name"] != _ADMIN for client in admin.client_list())
        kept, size = self.home.kept, self.home.data_bytes()
        folder = str(self.home.folder)
        return Status(state, self.home.url, folder, pid, server, connections, kept, size)

    def _ping(self) -> bytes:
        """Return what the server says to a PING; nothing, if there is none or it is silent.

        Most answers are as good as PONG: what is wrong, the next command will tell.
        """
        try:
            with sockets.socket(sockets.AF_UNIX) as probe:
                probe.settimeout(2)
                probe.connect(str(self.socket))
                probe.sendall(b"PING\r\n")
                return probe.recv(64)
        except OSError:
            return b""

    @contextlib.contextmanager
    def _admin(self) -> Iterator[redis.Redis]:
        """Yield a client for the server; that it is gone is no error."""
        admin = redis.Redis(
            unix_socket_path=str(self.socket),
            socket_timeout=2,
            retry=Retry(NoBackoff(), 0),
            client_name=_ADMIN,
        )
        with admin, contextlib.suppress(redis.RedisError, OSError):
            yield admin

    def _await_end(self, pid: int | None, *, stopping: bool = False) -> None:
        """Wait until the server of this process id (None: not known yet) has let go of the lock.

        If `stopping`, tell it to end.
        """
        deadline = time.monotonic() + launch.SILENCE
        while self.home.locked():
            if pid is None and self._ping():  # before that it may be a dead one's
                pid = self.home.pid
            if pid is not None and self.home.pid not in (pid, None):
                return  # somebody has needed it, and started the next one
            if stopping:
                with self._admin() as admin:
                    admin.shutdown(nosave=True)
            if time.monotonic() > deadline:
                raise launch.is_silent(self.home)
            time.sleep(LOOK)


def _server(home: Path) -> Embedded:
    with _making:
        if home not in _servers:
            _servers[home] = Embedded(home)
            atexit.register(_servers[home].stop_unused)
        return _servers[home]
