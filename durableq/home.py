"""Home: the directory of an embedded server: whose it is, who has its lock, what is in it.

launch.py starts the server, embedded.py finds and stops it.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from urllib.parse import quote

from durableq.errors import EmbeddedServerError

SOCKET_LIMIT = 100  # bytes; the system allows 107 on Linux, 103 on macOS
MARK = "lock"
"""The file that marks a directory as ours."""

ROOM = 8 * 1024 * 1024
"""Free bytes that a server needs to start: twice the most that is sent to it at once."""

LOG_LIMIT = 1024 * 1024
"""Bytes of the server's log above which the next server begins a new one."""

TURN = 5.0
"""Seconds to wait for one's turn to decide whether the server is to stay."""

LOOK = 0.005
"""Seconds between two looks at what another process does; nothing tells when a lock is free."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY


class Lock:
    """A lock of this process on a file or a directory, until it is released or forgotten.

    The lock belongs to the open file: a process that inherits `fd` has it, too.
    """

    def __init__(self, path: Path, flags: int) -> None:
        with unforked:
            self.fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
            if self.fd < 3:
                # In a process without its standard streams, which a child is given anew.
                low, self.fd = self.fd, fcntl.fcntl(self.fd, fcntl.F_DUPFD_CLOEXEC, 3)
                os.close(low)
            _locks.add(self)

    def acquire(self, kind: int) -> bool:
        """Acquire the lock, LOCK_EX or LOCK_SH, if it is to be had; tell whether it was."""
        try:
            fcntl.flock(self.fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise OSError(
                error.errno, f"it cannot be locked, as on NFS: {error.strerror}"
            ) from None
        return True

    def release(self) -> None:
        """Release it; safe to call twice."""
        with unforked:
            if self.fd >= 0:
                fd, self.fd = self.fd, -1
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it could not be opened
            self.release()


_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()

unforked = threading.RLock()
"""While a thread holds it no other thread forks: no child inherits what is opened meanwhile."""


def _forget() -> None:
    """Let a forked child not keep what another thread of its parent holds for a moment."""
    for lock in list(_locks):
        lock.release()
    unforked.release()


os.register_at_fork(
    before=unforked.acquire, after_in_parent=unforked.release, after_in_child=_forget
)


class Home:
    """A directory for one server at a time: its data, its socket, its log, and its lock.

    Methods raise EmbeddedServerError where the directory cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The server binds "socket" relative to its directory, whatever the length of that path.
        # For clients a long one is shortened by a link, of which every process may have its own.
        self._alias = _alias(folder)
        self.socket = (self._alias or folder) / "socket"
        self.log = folder / "log"

    @property
    def url(self) -> str:
        """The server's URL, as a client takes it."""
        return f"unix://{quote(os.fsencode(self.socket))}"

    def check(self) -> None:
        """See that nobody else owns the directory, and that its socket can be reached."""
        with self._usable():
            _check_owner(self.folder)
            if self._alias is not None:
                _link(self._alias, self.folder)

    def lock(self) -> Lock | None:
        """Return the directory's lock, acquired; None while a server has it.

        Makes the directory if there is none.
        """
        with self._usable():
            if not self.folder.exists():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(self.folder)
            names = os.listdir(self.folder)
            if names and MARK not in names:
                raise FileExistsError("it holds files of something else")
            if self.folder.stat().st_mode & 0o777 != 0o700:
                self.folder.chmod(0o700)
            (self.folder / MARK).touch(mode=0o600)
            # The directory itself, and not a file in it: who empties it while a server runs must
            # not let a second one in.
            lock = Lock(self.folder, _FOLDER)
            return lock if lock.acquire(fcntl.LOCK_EX) else None

    def locked(self) -> bool:
        """Tell whether a server has the lock. Makes nothing."""
        with self._usable():
            _check_owner(self.folder)
            if not self.folder.exists():
                return False
            with Lock(self.folder, _FOLDER) as lock:
                return not lock.acquire(fcntl.LOCK_SH)

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """Be the only process that decides whether the server is to stay."""
        with self._usable(), Lock(self.folder / "leaving", os.O_RDWR | os.O_CREAT) as turn:
            deadline = time.monotonic() + TURN
            while not turn.acquire(fcntl.LOCK_EX):
                if time.monotonic() > deadline:  # that one is suspended, perhaps
                    raise TimeoutError(f"another process has held leaving for {TURN:.0f} s")
                time.sleep(LOOK)
            yield

    def clear(self) -> None:
        """Make the directory ready for a server that starts. Only for whoever has the lock."""
        with self._usable():
            for name in ("socket", "pid"):
                (self.folder / name).unlink(missing_ok=True)
            if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
                self.log.replace(self.folder / "log.1")
            # A server that cannot write its file ends at once, and would be started again and
            # again: better to say so before.
            room = self.folder / "room"
            try:
                room.write_bytes(bytes(ROOM))
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise OSError(
                    error.errno, f"{error.strerror}: {ROOM >> 20} MiB must be free"
                ) from None
            finally:
                room.unlink(missing_ok=True)

    @property
    def kept(self) -> bool:
        """Whether the server is to stay when its last user leaves."""
        return (self.folder / "kept").exists()

    @kept.setter
    def kept(self, kept: bool) -> None:
        with self._usable():
            if kept:
                (self.folder / "kept").touch()
            elif (self.folder / MARK).exists():  # else it is no directory of ours
                (self.folder / "kept").unlink(missing_ok=True)

    @property
    def writer(self) -> str:
        """The name and version of the server that has written the data; "" if there is none."""
        return self._read("server")

    @writer.setter
    def writer(self, name: str) -> None:
        with self._usable():
            (self.folder / "server").write_text(f"{name}\n")

    @property
    def pid(self) -> int | None:
        """The process id that the server has left here; it may be a dead one's."""
        text = self._read("pid")
        return int(text) if text.isdecimal() else None

    def _read(self, name: str) -> str:
        try:
            return (self.folder / name).read_text(errors="replace").strip()
        except OSError:
            return ""

    @property
    def log_size(self) -> int:
        """Where in the log the next line will be."""
        return self.log.stat().st_size if self.log.exists() else 0

    def log_lines(self, start: int = 0) -> list[str]:
        """Return the log's lines from the byte `start` on."""
        try:
            with open(self.log, "rb") as log:
                log.seek(start)
                return log.read().decode(errors="replace").splitlines()
        except OSError:
            return []

    def data_bytes(self) -> int:
        """Return the size of what the server keeps on disk."""
        total = 0
        for file in (*self.folder.glob("appendonly.aof"), *self.folder.glob("appendonlydir/*")):
            with contextlib.suppress(FileNotFoundError):  # it was rewritten just now
                total += file.stat().st_size
        return total

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Turn what is wrong with the directory into our error."""
        try:
            yield
        except OSError as error:
            raise EmbeddedServerError(
                f"the embedded server's directory {self.folder} cannot be used ({error}): set "
                "DURABLEQ_HOME to one of your own, or DURABLEQ_URL to a server"
            ) from error


def _check_owner(folder: Path) -> None:
    if folder.exists() and folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")


def _alias(folder: Path) -> Path | None:
    """Return the short path for a folder whose own is too long for a socket in it."""
    if len(os.fsencode(folder / "socket")) <= SOCKET_LIMIT:
        return None
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    bases = ["/tmp"]  # noqa: S108 (a folder of our own in it)
    with contextlib.suppress(OSError):  # where nothing can be written; it may be there all the same
        bases.insert(0, tempfile.gettempdir())
    for base in bases:
        alias = Path(base) / f"durableq-{os.getuid()}" / name
        if len(os.fsencode(alias / "socket")) <= SOCKET_LIMIT:
            break
    return alias


def _link(alias: Path, folder: Path) -> None:
    if not alias.parent.exists():
        alias.parent.mkdir(mode=0o700, exist_ok=True)
    found = alias.parent.lstat()  # a link there may be anybody's
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{alias.parent} is not a folder that only this user can write to")
    if not alias.is_symlink() or Path(os.readlink(alias)) != folder:
        new = alias.with_name(f"{alias.name}.{os.getpid()}")
        new.unlink(missing_ok=True)
        new.symlink_to(folder)
        new.replace(alias)
