"""What the tests share: servers to run on, and one way to drive both kinds of queue."""

import asyncio
import inspect
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import fakeredis
import redis

from durableq import AsyncQueue, Queue
from durableq.keys import PARTS


class Record(NamedTuple):
    """The words of a job's record, as lua/lib/record.lua writes them."""

    sequence: str
    state: str
    attempt: str
    token: str
    spent: str
    deaths: str
    limit: str
    priority: str
    enqueued: str
    changed: str
    lease: str
    worker: str

    @classmethod
    def of(cls, text: bytes) -> "Record":
        return cls(*text.decode().split(" ", 11))

    @property
    def member(self) -> str:
        """What stands before its id in a list or a sorted set."""
        return self.sequence.zfill(13)

    def older(self, seconds: float) -> "Record":
        """The same, enqueued so many seconds before."""
        return self._replace(enqueued=f"{int(self.enqueued) - seconds * 1000:.0f}")

    def text(self) -> bytes:
        return " ".join(self).encode()


class Backend:
    """A server: how to make clients for it, and a raw look at its keys."""

    def __init__(self, name: str, url: str | None = None, **options: Any) -> None:
        self.name, self.url, self.options = name, url, options
        self.fake = fakeredis.FakeServer() if url is None else None

    def client(self, **options: Any) -> redis.Redis:
        if self.fake:
            return fakeredis.FakeRedis(server=self.fake, **options)
        return redis.Redis.from_url(self.url, **self.options | options)

    def async_client(self, **options: Any) -> redis.asyncio.Redis:
        if self.fake:
            return fakeredis.FakeAsyncRedis(server=self.fake, **options)
        return redis.asyncio.Redis.from_url(self.url, **self.options | options)


class Blocking:
    """An AsyncQueue, driven like a Queue: every test is written once, as plain code."""

    def __init__(self, queue: AsyncQueue, loop: asyncio.AbstractEventLoop) -> None:
        self.queue, self.loop = queue, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.queue, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: self.loop.run_until_complete(found(*args, **kwargs))


AnyQueue = Queue | Blocking
Make = Callable[..., Any]


class Lab:
    """Makes queues of one kind on one backend, and ends them."""

    def __init__(self, backend: Backend, asynchronous: bool) -> None:
        self.backend, self.asynchronous = backend, asynchronous
        self.raw = backend.client()
        self._loop = asyncio.new_event_loop()
        self._made: list[Any] = []
        self._clients: list[Any] = []

    def client(self, **options: Any) -> Any:
        """A user's client, as given to `redis=`."""
        if not self.asynchronous:
            client: Any = self.backend.client(**options)
        else:
            client = self.backend.async_client(**options)
        self._clients.append(client)
        return client

    def queue(self, name: str | None = None, **settings: Any) -> Any:
        settings.setdefault("redis", self.client())
        if not self.asynchronous:
            queue: Any = Queue(name, **settings)
        else:
            queue = Blocking(AsyncQueue(name, **settings), self._loop)
        self._made.append(queue)
        if self.asynchronous:
            queue.settings()  # opens it, as the constructor of a Queue does
        return queue

    def key(self, queue: Any, part: str) -> bytes:
        return queue._definition.keys[PARTS.index(part)]

    def dump(self, queue: Any) -> dict[str, Any]:
        return dump(self.raw, queue._definition.keys)

    def end(self) -> None:
        for queue in self._made:
            self.raw.delete(*queue._definition.keys)
            queue.close()
        for client in self._clients:
            if self.asynchronous:
                self._loop.run_until_complete(client.aclose())
            else:
                client.close()
        self.raw.close()
        self._loop.close()


def dump(raw: redis.Redis, keys: tuple[bytes, ...]) -> dict[str, Any]:
    """The contents of every existing part of a queue, whatever its type."""
    pipe = raw.pipeline(transaction=False)
    readers: dict[bytes, Callable[[bytes], Any]] = {
        b"string": pipe.get,
        b"hash": pipe.hgetall,
        b"list": lambda key: pipe.lrange(key, 0, -1),
        b"set": pipe.smembers,
        b"zset": lambda key: pipe.zrange(key, 0, -1, withscores=True),
        b"stream": pipe.xrange,
    }
    for key in keys:
        pipe.type(key)
    kinds = list(zip(PARTS, keys, pipe.execute(), strict=True))
    there = [(part, key, kind) for part, key, kind in kinds if kind != b"none"]
    for _, key, kind in there:
        readers[kind](key)
    return {part: value for (part, _, _), value in zip(there, pipe.execute(), strict=True)}


def taken(queue: Any) -> list[str]:
    """The ids of all waiting jobs, in their order: they are in flight then."""
    ids = []
    while job := queue.reserve():
        ids.append(job.id)
    return ids


@contextmanager
def running(program: str, folder: Path, *options: str, port: int = 0) -> Iterator[str]:
    """Run a server program of any kind on a unix socket in `folder`; yield its URL."""
    path = folder / "s"
    words = ["--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(path)]
    words += ["--dir", str(folder), "--save", "", "--logfile", str(folder / "log"), *options]
    process = subprocess.Popen([program, *words])
    try:
        await_answer(f"unix://{path}")
        yield f"unix://{path}"
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def await_answer(url: str) -> None:
    def answers() -> bool:
        try:
            with redis.Redis.from_url(url) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    await_true(answers)


def await_true(condition: Callable[[], Any], seconds: float = 20) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.005)


def redis_server() -> str | None:
    return shutil.which("redis-server")
