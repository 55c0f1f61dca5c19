"""Waiting: for a job, for room, for the end of a job and of all: woken at once, and never lost.

Where a test says `deaf`, nobody looks again by itself within the test: who goes on was woken.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy
from support import Backend, Lab, await_true, running

from durableq import (
    AsyncQueue,
    InvalidArgument,
    Job,
    OutcomeUnknown,
    Queue,
    QueueClosed,
    QueueNotFound,
    Reason,
    async_client,
    client,
    operations,
    policy,
)
from durableq.program import find_program

LONG = 60.0
"""Seconds to wait for what comes; a test that needs them all has failed."""


@dataclass
class Told:
    """What a waiting call answered, and when."""

    answer: Any
    at: float
    took: float


class Crowd:
    """Waiters on one backend, each in a thread of its own, with a queue of its own."""

    def __init__(self, backend: Backend, asynchronous: bool) -> None:
        self.backend, self.asynchronous = backend, asynchronous
        self.raw = backend.client()
        self._made: list[Queue[str]] = []
        self._calls: list[Future[Told]] = []

    def queue(self, **settings: Any) -> Queue[str]:
        """The queue that all meet at, for the test itself."""
        self._made.append(Queue(redis=self.backend.client(), **settings))
        return self._made[-1]

    def start(
        self, queue: Queue[str], verb: str, *args: Any, kind: str = "", **kwargs: Any
    ) -> "Future[Told]":
        """Have a method of the queue called by somebody else."""
        call: Future[Told] = Future()
        options = kwargs.pop("options", {})
        asynchronous = kind == "async" if kind else self.asynchronous

        async def ask() -> Told:
            user = self.backend.async_client(**options)
            async with AsyncQueue(queue.name, redis=user) as own:
                start = time.monotonic()
                answer = await getattr(own, verb)(*args, **kwargs)
                end = time.monotonic()
            await user.aclose()
            return Told(answer, end, end - start)

        def work() -> None:
            try:
                if asynchronous:
                    call.set_result(asyncio.run(ask()))
                    return
                with Queue(queue.name, redis=self.backend.client(**options)) as own:
                    start = time.monotonic()
                    answer = getattr(own, verb)(*args, **kwargs)
                    end = time.monotonic()
                call.set_result(Told(answer, end, end - start))
            except BaseException as error:  # for whoever asks for the result
                call.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        self._calls.append(call)
        return call

    def asleep(self, number: int) -> None:
        """Wait until so many sleep on the server."""
        await_true(lambda: self.sleepers() == number)

    def sleepers(self) -> int:
        return self.raw.info("clients")["blocked_clients"]

    def sleeping(self, queue: Queue[str], verb: str, *args: Any, **kwargs: Any) -> "Future[Told]":
        """Start a call and wait until it sleeps: those started one by one sleep in order."""
        before = self.sleepers()
        call = self.start(queue, verb, *args, **kwargs)
        self.asleep(before + 1)
        return call

    def key(self, queue: Queue[str], part: str) -> bytes:
        return Lab.key(None, queue, part)  # type: ignore[arg-type]

    def scripts(self) -> int:
        """How many script calls the server has run."""
        return self.raw.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)

    def end(self) -> None:
        for queue in self._made:
            self.raw.delete(*queue._definition.keys)
        await_true(self._ended)
        for queue in self._made:
            queue.close()
        await_true(lambda: self.sleepers() == 0)
        self.raw.close()

    def _ended(self) -> bool:
        """Wake all who sleep still: they find that their queue is gone."""
        for other in self.raw.client_list():
            if "b" in other["flags"]:
                self.raw.client_unblock(other["id"])
        return all(call.done() for call in self._calls)


@pytest.fixture(params=["sync", "async"])
def crowd(request: pytest.FixtureRequest, real: Backend) -> Iterator[Crowd]:
    crowd = Crowd(real, request.param == "async")
    yield crowd
    crowd.end()


@pytest.fixture
def mixed(real: Backend) -> Iterator[Crowd]:
    """Where a test starts both kinds itself."""
    crowd = Crowd(real, asynchronous=False)
    yield crowd
    crowd.end()


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again who was not woken."""
    monkeypatch.setattr(policy, "LONGEST_SLEEP", LONG)


@pytest.fixture(params=["embedded", "redis7"])
def program(request: pytest.FixtureRequest) -> str:
    """Each server program in turn, for a server of one's own."""
    if request.param == "embedded":
        return str(find_program().path)
    return request.getfixturevalue("redis_program")


def answer(call: "Future[Told]", seconds: float = LONG / 3) -> Any:
    return call.result(seconds).answer


def held(queue: Queue[str], id: str = "a", **kwargs: Any) -> Job[str]:
    """A job in flight."""
    assert queue.enqueue(id)
    job = queue.reserve(**kwargs)
    assert job is not None
    return job


def failed(queue: Queue[str]) -> None:
    job = held(queue)
    assert queue.fail(job.id, job.attempt)


# A job


def test_without_a_wait_nobody_sleeps(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = lab.queue(capacity=0)
    monkeypatch.setattr(queue.client, "listener", lambda *_: pytest.fail("it sleeps"))

    assert queue.reserve() is None
    assert queue.reserve(wait=0) is None
    assert queue.reserve(wait=timedelta(0)) is None
    assert queue.enqueue("a", wait=0) is False


def test_what_is_there_is_not_waited_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = lab.queue(capacity=1)
    monkeypatch.setattr(queue.client, "listener", lambda *_: pytest.fail("it sleeps"))

    assert queue.enqueue("a", wait=LONG) is True
    assert queue.reserve(wait=LONG).id == "a"


@pytest.mark.parametrize("wait", [0.4, timedelta(milliseconds=400)], ids=str)
def test_a_wait_ends_in_time_and_not_before(lab: Lab, wait: Any) -> None:
    queue = lab.queue(capacity=0)
    calls: list[tuple[Callable[[], Any], Any]] = [
        (lambda: queue.reserve(wait=wait), None),
        (lambda: queue.enqueue("a", wait=wait), False),
    ]
    for call, expected in calls:
        start = time.monotonic()
        assert call() is expected
        assert 0.4 <= time.monotonic() - start < 1.3


def test_the_shortest_wait(lab: Lab) -> None:
    assert lab.queue().reserve(wait=1e-9) is None


BAD = [-1, -0.001, float("nan"), float("inf"), 365 * 24 * 3600 + 1, timedelta(days=366)]
WRONG = [True, "1", None, b"1", [1]]


@pytest.mark.parametrize("verb", ["reserve", "enqueue", "wait_for", "join"])
@pytest.mark.parametrize("value", [*BAD, *WRONG], ids=str)
def test_a_bad_wait_is_refused_before_anything_is_sent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, verb: str, value: Any
) -> None:
    queue = lab.queue()
    monkeypatch.setattr(queue.client, "deliver", lambda *_: pytest.fail("it sent"))
    name = "wait" if verb in ("reserve", "enqueue") else "timeout"
    if value is None and name == "timeout":
        pytest.skip("None is no limit")
    args = ("a",) if verb in ("enqueue", "wait_for") else ()

    with pytest.raises(InvalidArgument if value in BAD else TypeError) as caught:
        getattr(queue, verb)(*args, **{name: value})

    assert name in str(caught.value)


def expired(queue: Queue[str]) -> Callable[[], Any]:
    """A lease that ends once the waiter has looked."""
    held(queue, lease=0.3)
    return lambda: None


def given_meanwhile(queue: Queue[str]) -> Callable[[], Any]:
    held(queue)
    return lambda: queue.extend("a", 1, 0.2)


def reaped(queue: Queue[str]) -> Callable[[], Any]:
    held(queue, lease=0.3)
    return lambda: await_true(lambda: queue.reap().due is None)


def settled(verb: str) -> Callable[[Queue[str]], Callable[[], Any]]:
    def prepare(queue: Queue[str]) -> Callable[[], Any]:
        held(queue)
        return lambda: getattr(queue, verb)("a", 1)

    return prepare


def redriven(verb: str, *args: str) -> Callable[[Queue[str]], Callable[[], Any]]:
    def prepare(queue: Queue[str]) -> Callable[[], Any]:
        failed(queue)
        return lambda: getattr(queue, verb)(*args)

    return prepare


WAKING: dict[str, Callable[[Queue[str]], Callable[[], Any]]] = {
    "enqueue": lambda queue: lambda: queue.enqueue("a"),
    "retry": settled("retry"),
    "release": settled("release"),
    "redrive": redriven("redrive", "a"),
    "redrive_all": redriven("redrive_all"),
    "expiry": expired,
    "short lease given meanwhile": given_meanwhile,
    "reap": reaped,
}


@pytest.mark.parametrize("how", WAKING)
def test_a_waiter_is_woken_by(crowd: Crowd, deaf: None, how: str) -> None:
    queue = crowd.queue()
    act = WAKING[how](queue)
    crowd.raw.delete(crowd.key(queue, "bell"))  # old rings, which would wake it for nothing
    waiter = crowd.sleeping(queue, "reserve", wait=LONG)

    act()

    assert answer(waiter).id == "a"


def test_a_waiter_is_woken_by_a_reservation_for_a_short_time(crowd: Crowd, deaf: None) -> None:
    queue = crowd.queue()
    bell = crowd.key(queue, "bell")
    other = threading.Thread(target=crowd.raw.blpop, args=(bell,))
    other.start()  # it takes the ring for the job
    crowd.asleep(1)
    waiter = crowd.sleeping(queue, "reserve", wait=LONG)

    held(queue, lease=0.2)

    assert answer(waiter).attempt == 2
    other.join()


def test_a_lease_is_awaited_to_its_end(crowd: Crowd) -> None:
    queue = crowd.queue()
    start = time.monotonic()
    held(queue, lease=0.5)

    assert answer(crowd.start(queue, "reserve", wait=LONG)).attempt == 2

    assert time.monotonic() - start >= 0.5


def test_one_job_wakes_one_waiter_and_the_others_sleep_on(crowd: Crowd, deaf: None) -> None:
    queue = crowd.queue()
    waiters = [crowd.sleeping(queue, "reserve", wait=LONG) for _ in range(5)]
    before = crowd.scripts()

    queue.enqueue("a")

    assert answer(waiters[0]).id == "a"
    assert crowd.scripts() == before + 2
    assert crowd.sleepers() == 4
    assert not any(waiter.done() for waiter in waiters[1:])
    queue.execute([operations.enqueue(id) for id in "bcde"])
    assert sorted(answer(waiter).id for waiter in waiters[1:]) == list("bcde")


@pytest.mark.parametrize("batch", [False, True], ids=["one-by-one", "batch"])
def test_so_many_jobs_wake_so_many_waiters(crowd: Crowd, deaf: None, batch: bool) -> None:
    queue, ids = crowd.queue(), [f"job-{i:02}" for i in range(20)]
    waiters = [crowd.start(queue, "reserve", wait=LONG) for _ in ids]
    crowd.asleep(len(ids))

    if batch:
        queue.execute([operations.enqueue(id) for id in ids])
    else:
        for id in ids:
            queue.enqueue(id)

    assert sorted(answer(waiter).id for waiter in waiters) == ids
    assert queue.reserve() is None


WAITER = """
import sys
from durableq import Queue
verb, *args = sys.argv[3:]
with Queue(sys.argv[1], redis=sys.argv[2]) as queue:
    getattr(queue, verb)(*args, wait=60)
"""


@pytest.fixture
def doomed(mixed: Crowd) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a waiter in a process of its own, which is killed at the end at the latest."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(queue: Queue[str], *words: str) -> subprocess.Popen[bytes]:
        before = mixed.sleepers()
        command = [sys.executable, "-c", WAITER, queue.name, str(mixed.backend.url), *words]
        processes.append(subprocess.Popen(command))
        mixed.asleep(before + 1)
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_ring_that_a_killed_waiter_took_along_costs_two_seconds(
    mixed: Crowd, doomed: Callable[..., subprocess.Popen[bytes]]
) -> None:
    queue = mixed.queue()
    victim = doomed(queue, "reserve")
    waiters = [mixed.sleeping(queue, "reserve", kind=kind, wait=LONG) for kind in KINDS]
    os.kill(victim.pid, signal.SIGSTOP)
    start = time.monotonic()
    queue.execute([operations.enqueue("a"), operations.enqueue("b")])

    victim.kill()

    assert sorted(answer(waiter).id for waiter in waiters) == ["a", "b"]
    assert max(waiter.result().at for waiter in waiters) - start < 4


KINDS = ("sync", "async")


class Moments:
    """What happens in a waiter at chosen moments, once each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ready = threading.Event()
        self.waited: Callable[[], Any] = lambda: None
        """As it stops waiting by its own clock, with its place in line still taken."""
        self.leaves: Callable[[], Any] = lambda: None
        """As it leaves its place."""
        wait, leave = client.Listener.wait, client.Listener.__exit__
        async_wait, async_leave = async_client.Listener.wait, async_client.Listener.__aexit__

        def waiting(listener: Any, *args: Any) -> Any:
            woken = wait(listener, *args)
            return woken or self.once("waited") or woken

        def leaving(listener: Any, *args: Any) -> Any:
            self.once("leaves")
            return leave(listener, *args)

        async def async_waiting(listener: Any, *args: Any) -> Any:
            woken = await async_wait(listener, *args)
            return woken or self.once("waited") or woken

        async def async_leaving(listener: Any, *args: Any) -> Any:
            self.once("leaves")
            return await async_leave(listener, *args)

        monkeypatch.setattr(client.Listener, "wait", waiting)
        monkeypatch.setattr(client.Listener, "__exit__", leaving)
        monkeypatch.setattr(async_client.Listener, "wait", async_waiting)
        monkeypatch.setattr(async_client.Listener, "__aexit__", async_leaving)

    def once(self, moment: str) -> None:
        assert self.ready.wait(LONG / 3)
        act = getattr(self, moment)
        setattr(self, moment, lambda: None)
        act()


def first_and_deaf(
    crowd: Crowd, queue: Queue[str], monkeypatch: pytest.MonkeyPatch
) -> list["Future[Told]"]:
    """Two waiters, of whom only the first looks by itself."""
    monkeypatch.setattr(policy, "LONGEST_SLEEP", 0.3)
    first = crowd.sleeping(queue, "reserve", wait=LONG)
    monkeypatch.setattr(policy, "LONGEST_SLEEP", LONG)
    return [first, crowd.sleeping(queue, "reserve", wait=LONG)]


def test_a_ring_that_comes_before_a_waiter_looks_by_itself_is_passed_on(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, moments = crowd.queue(), Moments(monkeypatch)
    moments.waited = lambda: queue.execute([operations.enqueue("a"), operations.enqueue("b")])
    waiters = first_and_deaf(crowd, queue, monkeypatch)

    moments.ready.set()

    assert [answer(waiter).id for waiter in waiters] == ["a", "b"]


def test_a_ring_that_comes_as_a_waiter_leaves_with_a_job_is_passed_on(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, moments = crowd.queue(), Moments(monkeypatch)
    moments.waited = lambda: queue.enqueue("a")
    moments.leaves = lambda: queue.enqueue("b")
    bell = crowd.key(queue, "bell")
    other = threading.Thread(target=crowd.raw.blpop, args=(bell,))
    other.start()  # it takes the ring for the first job
    crowd.asleep(1)
    waiters = first_and_deaf(crowd, queue, monkeypatch)

    moments.ready.set()

    assert [answer(waiter).id for waiter in waiters] == ["a", "b"]
    other.join()


def test_a_long_sleep_outlasts_every_timeout_on_the_same_connections(mixed: Crowd) -> None:
    queue = mixed.queue()
    waiters = [
        mixed.start(queue, "reserve", kind=kind, wait=LONG, options={"socket_timeout": timeout})
        for kind in KINDS
        for timeout in (None, 1, 5)
    ]
    mixed.asleep(len(waiters))
    made = mixed.raw.info("stats")["total_connections_received"]
    start = time.monotonic()
    await_true(lambda: time.monotonic() - start > 3)

    # Each has one to sleep on and, since it looked again, one to look.
    assert mixed.raw.info("stats")["total_connections_received"] <= made + len(waiters)
    queue.execute([operations.enqueue(f"job-{i}") for i in range(len(waiters))])
    assert len({answer(waiter).id for waiter in waiters}) == len(waiters)


def test_repeated_waits_use_the_same_connections(real_lab: Lab) -> None:
    queue = real_lab.queue(capacity=0)

    def waits() -> None:
        for _ in range(3):
            assert queue.reserve(wait=0.01) is None
            assert queue.enqueue("a", wait=0.01) is False

    waits()
    made = real_lab.raw.info("stats")["total_connections_received"]
    waits()

    assert real_lab.raw.info("stats")["total_connections_received"] == made


def test_a_wait_outlasts_a_restart(program: str, short_folder: Path) -> None:
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    with running(program, short_folder, *durable) as url:
        crowd = Crowd(Backend("restarted", url), asynchronous=False)
        queue, full = crowd.queue(), crowd.queue(capacity=1)
        job = held(full)
        waiters = [crowd.start(queue, "reserve", kind=kind, wait=LONG) for kind in KINDS]
        waiters += [crowd.start(full, "enqueue", "b", kind=kind, wait=LONG) for kind in KINDS]
        crowd.asleep(4)
        dead = crowd
    with running(program, short_folder, *durable) as url:
        crowd = Crowd(Backend("restarted", url), asynchronous=False)
        queue.execute([operations.enqueue("x"), operations.enqueue("y")])
        assert full.ack(job.id, job.attempt)

        assert sorted(answer(waiter).id for waiter in waiters[:2]) == ["x", "y"]
        # It is the same job: one gets in, the other is told that it is there already.
        assert sorted(answer(waiter) for waiter in waiters[2:]) == [False, True]
        crowd.end()
        dead.end()


def test_a_wait_outlasts_connections_that_are_cut_again_and_again(mixed: Crowd) -> None:
    queue, full = mixed.queue(), mixed.queue(capacity=1)
    job = held(full)
    waiters = [mixed.start(queue, "reserve", kind=kind, wait=LONG) for kind in KINDS]
    producers = [mixed.start(full, "enqueue", kind, kind=kind, wait=LONG) for kind in KINDS]
    for _ in range(5):
        mixed.asleep(4)
        mixed.raw.client_kill_filter(_type="normal", skipme=True)
    mixed.asleep(4)

    queue.execute([operations.enqueue("x"), operations.enqueue("y")])
    full.ack(job.id, job.attempt)

    assert sorted(answer(waiter).id for waiter in waiters) == ["x", "y"]
    second = full.reserve(wait=LONG)
    assert second is not None
    full.ack(second.id, 1)
    assert [answer(producer) for producer in producers] == [True, True]


def test_a_queue_that_is_destroyed_ends_its_waits(mixed: Crowd) -> None:
    queue = mixed.queue(capacity=0)
    waiters = [mixed.start(queue, "reserve", kind=kind, wait=LONG) for kind in KINDS]
    waiters += [mixed.start(queue, "enqueue", "a", kind=kind, wait=LONG) for kind in KINDS]
    mixed.asleep(4)
    start = time.monotonic()

    queue.destroy()

    for waiter in waiters:
        assert isinstance(waiter.exception(LONG / 3), QueueNotFound)
    assert time.monotonic() - start < 5


def test_a_queue_that_is_closed_ends_its_waits(mixed: Crowd) -> None:
    queue = mixed.queue()
    heard: list[type[BaseException]] = []

    def waits() -> None:
        with pytest.raises(QueueClosed):
            queue.reserve(wait=LONG)
        heard.append(QueueClosed)

    async def closes() -> None:
        other = AsyncQueue(queue.name, redis=mixed.backend.url)
        waiter = asyncio.create_task(other.reserve(wait=LONG))
        await asyncio.to_thread(mixed.asleep, 2)
        queue.close()
        await other.close()
        with pytest.raises(QueueClosed):
            await waiter

    thread = threading.Thread(target=waits)
    thread.start()
    start = time.monotonic()
    asyncio.run(closes())
    thread.join()

    assert heard == [QueueClosed]
    assert time.monotonic() - start < 6


def test_a_wait_with_a_request_of_the_users(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("a")

    job = queue.reserve(wait=LONG, request="mine")
    assert (job.id, job.attempt) == ("a", 1)
    assert queue.reserve(wait=LONG, request="mine") == job
    assert queue.reserve(wait=0.1, request="other") is None
    assert queue.enqueue("b", wait=0.1, request="third") is False
    queue.ack("a", 1)

    assert queue.enqueue("b", wait=0.1, request="third") is True
    assert queue.reserve(wait=0.1, request="other").id == "b"


@pytest.fixture(params=["sync", "async"])
def far(request: pytest.FixtureRequest, real: Backend) -> Iterator[tuple[Crowd, Proxy]]:
    """Waiters on the far side of a proxy."""
    with Proxy(real.url) as proxy:
        crowd = Crowd(Backend("far", proxy.url), request.param == "async")
        yield crowd, proxy
        proxy.come_back()
        crowd.end()


def unknown(call: "Future[Told]") -> str:
    """The request of a call whose outcome nobody knows."""
    error = call.exception(LONG / 3)
    assert isinstance(error, OutcomeUnknown)
    return error.request


@pytest.mark.parametrize("woken", [True, False])
def test_what_became_of_a_look_after_a_sleep_can_be_found_out(
    far: tuple[Crowd, Proxy], monkeypatch: pytest.MonkeyPatch, woken: bool
) -> None:
    monkeypatch.setattr(policy, "PATIENCE", 0.05)
    (crowd, proxy), always = far, 10**6
    if woken:
        monkeypatch.setattr(policy, "LONGEST_SLEEP", LONG)
    queue, full = crowd.queue(), crowd.queue(capacity=1)
    job = held(full)
    worker = crowd.sleeping(queue, "reserve", wait=LONG)
    producer = crowd.sleeping(full, "enqueue", "b", "of b", wait=LONG)
    faults = [proxy.fault(name, times=always) for name in ("reserve", "enqueue")]
    with Queue(queue.name, redis=proxy.target) as near:
        near.enqueue("a", "of a")
    with Queue(full.name, redis=proxy.target) as near:
        near.ack(job.id, job.attempt)
    requests = unknown(worker), unknown(producer)
    assert all(fault.hits for fault in faults)
    proxy.come_back()

    found = queue.reserve(request=requests[0])

    assert found is not None
    assert (found.id, found.payload, found.attempt) == ("a", "of a", 1)
    assert full.enqueue("b", "of b", request=requests[1]) is True
    second = full.reserve()
    assert second is not None
    assert (second.id, second.payload) == ("b", "of b")


def test_a_waiter_on_any_server_gets_what_comes(backend: Backend) -> None:
    """On fakeredis, too, where nobody can be seen asleep."""
    with Queue(redis=backend.client()) as queue:
        got: list[Any] = []
        start = threading.Thread(target=lambda: got.append(queue.reserve(wait=LONG)))
        start.start()
        queue.enqueue("a")
        start.join(LONG / 3)
        assert got[0].id == "a"

        async def both() -> Any:
            client = backend.async_client()
            async with AsyncQueue(queue.name, redis=client) as other:
                waiter = asyncio.create_task(other.reserve(wait=LONG))
                await asyncio.sleep(0)
                await other.enqueue("b")
                found = await waiter
            await client.aclose()
            return found

        assert asyncio.run(both()).id == "b"
        queue.destroy()


def test_leases_of_many_waiters_are_all_awaited(crowd: Crowd, deaf: None) -> None:
    queue, ids = crowd.queue(), [f"job-{i}" for i in range(6)]
    queue.execute([operations.enqueue(id) for id in ids])
    queue.execute([operations.reserve()] * len(ids))
    crowd.raw.delete(crowd.key(queue, "bell"))
    waiters = [crowd.start(queue, "reserve", wait=LONG) for _ in ids]
    crowd.asleep(len(ids))

    queue.execute([operations.extend(id, 1, 0.2 + i / 20) for i, id in enumerate(ids)])

    assert sorted(answer(waiter).id for waiter in waiters) == ids


# Room


def last_retry(queue: Queue[str]) -> Callable[[], Any]:
    held(queue, max_attempts=1)
    return lambda: queue.retry("a", 1)


def last_reap(queue: Queue[str]) -> Callable[[], Any]:
    held(queue, max_attempts=1, lease=0.2)
    return lambda: await_true(lambda: queue.reap().failed)


def last_lease(queue: Queue[str]) -> Callable[[], Any]:
    held(queue, max_attempts=1, lease=0.2)
    return lambda: await_true(lambda: queue.execute(operations.reserve()).failed)


def used_up(queue: Queue[str]) -> Callable[[], Any]:
    """A job that waits, with more attempts behind it than are allowed by now."""
    held(queue)
    queue.retry("a", 1)
    queue.configure(max_attempts=1)
    return lambda: queue.execute(operations.reserve()).failed


def cancelled(queue: Queue[str]) -> Callable[[], Any]:
    queue.enqueue("a")
    return lambda: queue.cancel("a")


def changed(capacity: int | None) -> Callable[[Queue[str]], Callable[[], Any]]:
    def prepare(queue: Queue[str]) -> Callable[[], Any]:
        held(queue)
        return lambda: queue.configure(capacity=capacity)

    return prepare


MAKING_ROOM: dict[str, Callable[[Queue[str]], Callable[[], Any]]] = {
    "ack": settled("ack"),
    "fail": settled("fail"),
    "cancel": cancelled,
    "cancel in flight": lambda queue: (held(queue), lambda: queue.cancel("a"))[1],
    "last retry": last_retry,
    "reap of a last attempt": last_reap,
    "reserve that meets a last attempt": last_lease,
    "reserve that meets a used-up job": used_up,
    "raised capacity": changed(2),
    "no capacity": changed(None),
}


@pytest.mark.parametrize("how", MAKING_ROOM)
def test_a_producer_is_woken_by(crowd: Crowd, deaf: None, how: str) -> None:
    queue = crowd.queue(capacity=1)
    act = MAKING_ROOM[how](queue)
    producer = crowd.sleeping(queue, "enqueue", "b", "of b", wait=LONG)

    act()

    assert answer(producer) is True
    job = queue.reserve()
    assert job is not None
    assert (job.id, job.payload) == ("b", "of b")


@pytest.mark.parametrize("capacity", [8, None])
def test_more_room_wakes_as_many_as_it_is_for(
    crowd: Crowd, deaf: None, capacity: int | None
) -> None:
    queue, ids = crowd.queue(capacity=0), [f"job-{i}" for i in range(8)]
    producers = [crowd.start(queue, "enqueue", id, wait=LONG) for id in ids]
    crowd.asleep(len(ids))

    queue.configure(capacity=capacity)

    assert all(answer(producer) for producer in producers)


def test_what_waiting_cannot_help_is_refused_at_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = lab.queue(capacity=1)
    for id, verb in (("finished", "ack"), ("failed", "fail")):
        queue.enqueue(id)
        getattr(queue, verb)(id, queue.reserve().attempt)
    queue.enqueue("active")
    monkeypatch.setattr(queue.client, "listener", lambda *_: pytest.fail("it sleeps"))

    for id in ("finished", "failed", "active"):
        assert queue.enqueue(id, wait=LONG) is False


def test_producers_get_room_in_turn(crowd: Crowd, deaf: None) -> None:
    queue = crowd.queue(capacity=1)
    job = held(queue)
    producers = [crowd.sleeping(queue, "enqueue", id, wait=LONG) for id in ("b", "c", "d")]

    for producer, id in zip(producers, ("b", "c", "d"), strict=True):
        queue.ack(job.id, job.attempt)
        assert answer(producer) is True
        found = queue.reserve()
        assert found is not None
        assert found.id == id
        job = found


def test_producers_get_room_in_turn_however_long_they_wait(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "LONGEST_SLEEP", 0.6)
    queue = crowd.queue(capacity=1)
    job = held(queue)
    first = crowd.sleeping(queue, "enqueue", "first", wait=LONG)
    before, start = crowd.scripts(), time.monotonic()
    await_true(lambda: time.monotonic() - start > 0.3)  # or their sleeps end in one server tick
    second = crowd.sleeping(queue, "enqueue", "second", wait=LONG)
    # `first` has looked again, `second` (which opened the queue and looked) has not.
    await_true(lambda: crowd.scripts() >= before + 3)
    crowd.asleep(2)

    queue.ack(job.id, job.attempt)

    await_true(lambda: first.done() or second.done())
    assert first.done()


def test_a_producer_that_cannot_use_its_room_passes_it_on(crowd: Crowd, deaf: None) -> None:
    queue = crowd.queue(capacity=1)
    job = held(queue)
    producers = [crowd.sleeping(queue, "enqueue", id, wait=LONG) for id in ("b", "b", "c")]
    queue.ack(job.id, job.attempt)
    assert answer(producers[0]) is True
    queue.reserve()

    queue.ack("b", 1)  # wakes the second, whose job is finished by now

    assert answer(producers[1]) is False
    assert answer(producers[2], 3) is True


@pytest.mark.parametrize("away", [-3600, -1.001, 60, 10**6])
def test_a_promise_is_kept_for_a_second_whatever_the_clock_does(lab: Lab, away: float) -> None:
    queue = lab.queue(capacity=1)
    seconds, micros = lab.raw.time()
    rung = seconds * 1000 + micros // 1000 + int(away * 1000)
    lab.raw.rpush(lab.key(queue, "promised"), rung)

    assert queue.enqueue("a") is True


def test_who_waits_gets_in_ahead_of_who_hammers(crowd: Crowd) -> None:
    queue = crowd.queue(capacity=1)
    queue.enqueue("a")
    over = threading.Event()
    numbers, accepted = iter(range(10**9)), Counter[int]()

    def hammer(which: int) -> None:
        with Queue(queue.name, redis=crowd.backend.client()) as own:
            while not over.is_set():
                accepted[which] += own.enqueue(f"hammer-{next(numbers)}")

    def consume() -> None:
        with Queue(queue.name, redis=crowd.backend.client()) as own:
            while not over.is_set():
                job = own.reserve(wait=0.2)
                if job is not None:
                    own.ack(job.id, job.attempt)

    threads = [threading.Thread(target=hammer, args=(which,)) for which in range(3)]
    threads.append(threading.Thread(target=consume))
    for thread in threads:
        thread.start()
    try:
        producers = [crowd.start(queue, "enqueue", f"calm-{i}", wait=LONG / 3) for i in range(3)]
        assert [answer(producer, LONG) for producer in producers] == [True] * 3
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_room_kept_for_a_killed_producer_is_kept_for_a_second(
    mixed: Crowd, doomed: Callable[..., subprocess.Popen[bytes]]
) -> None:
    queue = mixed.queue(capacity=1)
    job = held(queue)
    victim = doomed(queue, "enqueue", "b")
    os.kill(victim.pid, signal.SIGSTOP)
    start = time.monotonic()
    queue.ack(job.id, job.attempt)
    victim.kill()

    first = queue.enqueue("c")

    assert first is False or time.monotonic() - start > 0.9  # a shared machine's pause
    await_true(lambda: first or queue.enqueue("c"))
    assert time.monotonic() - start < 3


def test_many_producers_few_consumers_lose_nothing_and_never_overfill(mixed: Crowd) -> None:
    queue, capacity, each = mixed.queue(capacity=3), 3, 12
    over = threading.Event()
    done: list[str] = []
    wrong: list[Any] = []

    def produce(which: int) -> None:
        with Queue(queue.name, redis=mixed.backend.client()) as own:
            told = [own.enqueue(f"job-{which}-{i}", wait=LONG) for i in range(each)]
            wrong.extend(answer for answer in told if answer is not True)

    async def produce_many() -> None:
        client = mixed.backend.async_client()
        async with AsyncQueue(queue.name, redis=client) as own:

            async def one(which: int) -> None:
                told = [await own.enqueue(f"job-{which}-{i}", wait=LONG) for i in range(each)]
                wrong.extend(answer for answer in told if answer is not True)

            async with asyncio.TaskGroup() as group:
                for which in range(4, 8):
                    group.create_task(one(which))
        await client.aclose()

    def consume() -> None:
        with Queue(queue.name, redis=mixed.backend.client()) as own:
            while len(done) < 8 * each and not over.is_set():
                job = own.reserve(wait=0.2)
                if job is not None:
                    done.append(job.id)
                    own.ack(job.id, job.attempt)

    def look() -> None:
        with mixed.backend.client() as raw:
            while not over.is_set():
                if raw.hlen(mixed.key(queue, "jobs")) > capacity:
                    wrong.append("more jobs than the capacity")
                time.sleep(random.random() / 200)

    producers = [threading.Thread(target=produce, args=(which,)) for which in range(4)]
    producers.append(threading.Thread(target=lambda: asyncio.run(produce_many())))
    others = [threading.Thread(target=work) for work in (consume, consume, look)]
    for thread in producers + others:
        thread.start()
    for thread in producers:
        thread.join()
    try:
        await_true(lambda: len(done) == 8 * each)
    finally:
        over.set()
        for thread in others:
            thread.join()

    assert not wrong
    assert sorted(done) == sorted(f"job-{which}-{i}" for which in range(8) for i in range(each))


# The end of a job, and of all


ENDS: dict[str, tuple[Callable[[Any], Any], Reason]] = {
    "ack": (lambda queue: queue.ack("a", 1), Reason.FINISHED),
    "cancel": (lambda queue: queue.cancel("a"), Reason.CANCELLED),
    "fail": (lambda queue: queue.fail("a", 1), Reason.FAILED),
    "purge": (
        lambda queue: queue.execute(operations.fail("a", 1)) and queue.purge_failed(),
        Reason.PURGED,
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_what_has_ended_is_told_at_once(lab: Lab, how: str) -> None:
    queue, (end, reason) = lab.queue(), ENDS[how]
    queue.enqueue("a")
    queue.reserve()
    end(queue)

    assert queue.wait_for("a") is reason
    assert queue.wait_for("a", 0) is reason
    assert queue.join() is True


@pytest.mark.parametrize("how", ["ack", "cancel", "fail"])
def test_the_end_of_a_job_is_awaited(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(policy, "POLL", 0.05)
    queue, (end, reason) = crowd.queue(), ENDS[how]
    held(queue)
    before = crowd.scripts()
    calls = [crowd.start(queue, "wait_for", "a"), crowd.start(queue, "join", LONG)]
    await_true(lambda: crowd.scripts() >= before + 8)
    assert not any(call.done() for call in calls)

    end(queue)

    assert answer(calls[0]) is reason
    assert answer(calls[1]) is True


def test_a_job_that_goes_on_is_told_as_it_is_when_the_time_is_over(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")

    for timeout in (0, 0.05, timedelta(milliseconds=50)):
        assert queue.wait_for("a", timeout) is Reason.WAITING
        assert queue.join(timeout) is False
    queue.reserve()
    start = time.monotonic()
    assert queue.wait_for("a", 0.2) is Reason.IN_FLIGHT
    assert queue.join(0.2) is False
    assert 0.4 <= time.monotonic() - start < 2


def test_an_id_that_no_job_had_is_unknown_at_once(lab: Lab) -> None:
    queue = lab.queue()

    for id in ("nobody", "", "not a name", "\ud800"):
        assert queue.wait_for(id) is Reason.UNKNOWN
    with pytest.raises(TypeError):
        queue.wait_for(1)


def test_failed_jobs_are_not_joined(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.fail("a", queue.reserve().attempt)

    assert queue.join() is True
    queue.redrive("a")
    assert queue.join(0) is False


def test_it_looks_once_a_second(crowd: Crowd) -> None:
    queue = crowd.queue()
    held(queue)
    before = crowd.scripts()

    calls = [crowd.start(queue, "wait_for", "a", 1.5), crowd.start(queue, "join", 1.5)]

    assert answer(calls[0]) is Reason.IN_FLIGHT
    assert answer(calls[1]) is False
    # Each opens the queue, and looks at the start, after a second, and at the end; a sleep that is
    # a little short makes it one more.
    assert 2 * (1 + 3) <= crowd.scripts() - before <= 2 * (1 + 4)


def test_a_queue_that_is_destroyed_ends_these_waits_too(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "POLL", 0.05)
    queue = crowd.queue()
    held(queue)
    before = crowd.scripts()
    calls = [crowd.start(queue, "wait_for", "a"), crowd.start(queue, "join")]
    await_true(lambda: crowd.scripts() >= before + 8)

    queue.destroy()

    for call in calls:
        assert isinstance(call.exception(LONG / 3), QueueNotFound)
