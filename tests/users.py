"""Other processes with queues on an embedded server, and looks at that server from outside."""

import contextlib
import fcntl
import inspect
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from support import await_true

KINDS = ["Queue", "AsyncQueue"]

USER = """
import asyncio, inspect, json, sys
import durableq

def call(name, *args):
    answer = getattr(queue, name)(*args)
    return loop.run_until_complete(answer) if inspect.iscoroutine(answer) else answer

loop = asyncio.new_event_loop()
queue = getattr(durableq, sys.argv[1])("shared")
call("settings")
print("null", flush=True)
for line in sys.stdin:
    try:
        answer = call(*json.loads(line))
    except durableq.DurableQueueError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=lambda job: [job.id, job.payload, job.attempt]), flush=True)
"""


class User:
    """Another process, with a queue on the embedded server of its environment."""

    def __init__(
        self, kind: str = "Queue", cwd: Path | None = None, code: str = USER, **environment: Any
    ) -> None:
        own = {**os.environ, **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, kind],
            env={name: str(value) for name, value in own.items() if value is not None},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            start_new_session=True,
        )

    def hear(self) -> Any:
        """Wait for the next answer; the first one comes when the queue is open."""
        heard, _, _ = select.select([self.process.stdout], [], [], 20)
        assert heard, "no answer"
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def tell(self, name: str, *args: Any) -> None:
        """Have a method of the queue called; `hear` its answer."""
        self.process.stdin.write(json.dumps([name, *args]) + "\n")
        self.process.stdin.flush()

    def call(self, name: str, *args: Any) -> Any:
        self.tell(name, *args)
        return self.hear()

    def leave(self) -> str:
        """Let the process end without closing anything; return what it had to say."""
        _, err = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, err
        return err


Start = Callable[..., User]


def connect(home: Path, name: str = "socket") -> redis.Redis:
    path = str(home / name)
    return redis.Redis(unix_socket_path=path, decode_responses=True, retry=Retry(NoBackoff(), 0))


def pid_of(home: Path, name: str = "socket") -> int:
    with connect(home, name) as raw:
        return raw.info("server")["process_id"]


def runs(home: Path) -> bool:
    """Tell whether a server has the directory's lock: it is held for as long as one lives."""
    try:
        lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def starts(home: Path) -> int:
    return (home / "log").read_text().count("Server initialized")


def kill_server(home: Path) -> int:
    pid = pid_of(home)
    os.kill(pid, signal.SIGKILL)
    await_true(lambda: not runs(home))
    return pid


def end_servers(folder: Path) -> None:
    """End every server with its directory below a folder."""

    def ended(home: Path) -> bool:
        if not runs(home):
            return True
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int((home / "pid").read_text()), signal.SIGKILL)
        return False

    for lock in folder.rglob("lock"):
        await_true(lambda home=lock.parent: ended(home))


def script(code: str, *words: Any, seconds: float = 20, silent: bool = False) -> str:
    """Run a program of our own to its good end; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", inspect.cleandoc(code), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    assert not silent or done.stderr == ""
    return done.stdout


def program(path: Path, version: str, *, otherwise: str = "exit 3") -> Path:
    """Make a program that answers --version with `version`."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then printf "{version}"; exit 0; fi\n{otherwise}\n'
    )
    path.chmod(0o755)
    return path
