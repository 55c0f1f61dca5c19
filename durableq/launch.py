"""Launch: the starting of the embedded server, and the waiting until it answers.

Which program it is comes from program.py, where it runs from home.py; embedded.py asks whether it
answers.
"""

import logging
import os
import re
import subprocess
import time

from durableq.errors import EmbeddedServerError
from durableq.home import LOOK, Home, Lock, unforked
from durableq.program import Program, find_program

SILENCE = 20.0
"""Seconds to wait for a first sign of a server that has the lock. While it loads, it says so."""

SAY_SO = 3.0
"""Seconds of loading after which the log says why a call takes its time."""

MOST_STARTS = 5
"""How often a server that ends at its start is started before the error."""

MOST_ENDS = 50
"""The same for one that comes up, and ends before it answers us: others may stop it."""

_log = logging.getLogger("durableq")


class Launch:
    """One wait for a server that answers: how long to wait, how often to start it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._begun = time.monotonic()
        self._deadline = self._begun + SILENCE
        self._program: Program | None = None
        self._log_start, self._ends, self._failures, self._told = 0, 0, 0, False

    def wait(self) -> None:
        """Wait a moment: somebody has the lock and does not answer yet."""
        if time.monotonic() > self._deadline:
            raise is_silent(self._home)
        time.sleep(LOOK)

    def loading(self) -> None:
        """Wait a moment, and as long as it takes: the server says that it is loading."""
        now = time.monotonic()
        self._deadline = now + SILENCE
        if now > self._begun + SAY_SO and not self._told:
            self._told = True
            _log.warning(
                "the embedded server is loading its data, %.0f MB; this call waits for it",
                self._home.data_bytes() / 1e6,
            )
        time.sleep(LOOK)

    def start(self, lock: Lock) -> None:
        """Start the server, or start it again; the lock says that there is none."""
        if self._program is not None:
            self._ends += 1
            self._failures += not self._came_up()
            if self._failures == MOST_STARTS or self._ends == MOST_ENDS:
                raise EmbeddedServerError(self._why())
            time.sleep(0.02 * 2**self._failures)  # whoever stops it, or the machine, gets a moment
        self._program = find_program()
        if self._program.version < (7, 0) and (self._home.folder / "appendonlydir").exists():
            # It would not look there, and begin with nothing.
            raise EmbeddedServerError(self._too_new())
        self._home.clear()
        self._log_start = self._home.log_size
        _spawn(self._program, self._home, lock)
        self._deadline = time.monotonic() + SILENCE

    def done(self) -> None:
        """Take note that the server answers."""
        if self._program is not None:
            self._home.writer = self._program.name

    def _came_up(self) -> bool:
        """Tell whether the server that we started was whole, or told to end: others may do that."""
        log = "\n".join(self._home.log_lines(self._log_start))
        return "eady to accept connections" in log or "bye bye" in log

    def _why(self) -> str:
        tail = _tail(self._home, self._log_start)
        if self._program and _is_newer(self._home.writer, self._program):
            return f"{self._too_new()} ({tail})"
        return (
            f"the embedded server ends at its start: {tail}; mend that, or set DURABLEQ_HOME to "
            "another directory, or DURABLEQ_URL to a server"
        )

    def _too_new(self) -> str:
        writer = self._home.writer or "a server of version 7 or newer"
        return (
            f"the data in {self._home.folder} was written by {writer}, and {self._program} cannot "
            "read it: install durableq[embedded], set DURABLEQ_SERVER to a server as new as that, "
            "or DURABLEQ_HOME to another directory"
        )


def _is_newer(writer: str, program: Program) -> bool:
    """Tell whether a server called `writer` is newer than a program, or of another kind."""
    kind, version = _parts(writer)
    mine, ours = _parts(program.name)
    return bool(writer) and (kind != mine or version > ours)


def _parts(name: str) -> tuple[str, tuple[int, ...]]:
    """Return kind and version of a server called "Valkey 9.1.2"."""
    kind, _, version = name.partition(" ")
    return kind, tuple(int(number) for number in re.findall(r"\d+", version))


def _spawn(program: Program, home: Home, lock: Lock) -> None:
    options = {
        "port": "0",
        "unixsocket": "socket",
        "unixsocketperm": "700",
        "dir": str(home.folder),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always",
        "logfile": "log",
        "pidfile": "pid",
        "daemonize": "no",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    try:
        with open(home.log, "ab") as output, unforked:
            # Started by a shell that ends at once, the server is nobody's child here: it outlives
            # us and leaves no zombie. In a session of its own it is spared a terminal's Ctrl-C.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "durableq", str(program.path), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home.folder,
                env={**os.environ, "LC_ALL": "C"},  # it ends where the user's locale is missing
                umask=0o077,
                start_new_session=True,
                pass_fds=(lock.fd,),
                check=True,
            )
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedServerError(
            f"the server program {program} cannot be started ({error}): set DURABLEQ_URL to a "
            "running server"
        ) from error


def _tail(home: Home, start: int = 0) -> str:
    """Return where the log is and how it ends."""
    lines = home.log_lines(start)
    return f"its log {home.log} ends with {lines[-1] if lines else 'nothing'!r}"


def is_silent(home: Home) -> EmbeddedServerError:
    """Return the error that somebody has the lock and no server answers."""
    pid = home.pid
    named = f" (process {pid}, if it is one of ours)" if pid else ""
    return EmbeddedServerError(
        f"the lock of {home.folder} is held{named}, and no server has answered for "
        f"{SILENCE:.0f} s: {_tail(home)}; end that process, or set DURABLEQ_HOME to another "
        "directory"
    )
