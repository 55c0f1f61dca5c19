"""A reserve that is interrupted or cancelled keeps nothing: whoever comes next gets the job."""

import asyncio
import gc
import logging
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proxy import Fault, Proxy
from support import Backend, await_true

from durableq import AsyncQueue, Queue, operations
from durableq.async_client import AsyncClient, Listener
from durableq.delivery import Delivery
from durableq.keys import PARTS
from durableq.scripts import script

LONG = 60.0
ALWAYS = -1
"""Times that a fault hits."""


class Mine(BaseException):
    """What a user's signal handler raises."""


class Line:
    """A slow or silent line to a server, and a direct look at what is there."""

    def __init__(self, real: Backend, proxy: Proxy) -> None:
        self.real, self.proxy = real, proxy
        self.raw = real.client()
        self.url = proxy.url
        for name in ("enqueue", "reserve", "release", "ack", "open", "settings"):
            self.raw.script_load(script(name).text)  # a fault is to hit what runs

    def slow(self, name: str = "reserve") -> Fault:
        """Let every call of a script take a tenth of a second."""

        def half() -> None:
            time.sleep(0.05)

        return self.proxy.fault(name, harmless=True, times=ALWAYS, before=half, after=half)

    def in_flight(self, queue: Any) -> set[str]:
        """The ids of the jobs that somebody has, as the server knows it."""
        jobs = self.raw.hgetall(queue._definition.keys[PARTS.index("jobs")])
        return {id.decode() for id, text in jobs.items() if b" 1f " in text}


@pytest.fixture
def line(real: Backend) -> Iterator[Line]:
    with Proxy(real.url) as proxy:
        line = Line(real, proxy)
        yield line
        proxy.come_back()
        line.raw.close()


@pytest.fixture
def alarm() -> Iterator[Callable[[type[BaseException]], None]]:
    """Choose what the signal that `strike` sends raises."""
    before = signal.getsignal(signal.SIGALRM)

    def choose(kind: type[BaseException]) -> None:
        def handler(*_: Any) -> None:
            raise kind

        signal.signal(signal.SIGALRM, handler)

    yield choose
    signal.signal(signal.SIGALRM, before)


def strike() -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)


async def until(condition: Callable[[], Any]) -> None:
    await asyncio.to_thread(await_true, condition)


# Cancelled


def test_a_reserve_cancelled_at_any_moment_has_nothing(line: Line) -> None:
    line.slow()

    async def one(moment: float) -> None:
        # With a single attempt allowed, one that counted would leave nothing to hand out.
        async with AsyncQueue(redis=line.url, max_attempts=1) as queue:
            await queue.enqueue("a", "of a")
            task = asyncio.create_task(queue.reserve())
            await asyncio.sleep(moment)
            task.cancel()
            try:
                job = await task
            except asyncio.CancelledError:
                assert not line.in_flight(queue)
                job = await queue.reserve()
                assert job is not None
                assert job.attempt <= 2
            assert (job.id, job.payload) == ("a", "of a")
            assert line.in_flight(queue) == {"a"}
            await queue.destroy()

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for step in range(24):
                group.create_task(one(0.01 + step * 0.18 / 23))

    asyncio.run(all_of_them())


@pytest.mark.parametrize("times", [1, 2, 50])
def test_a_reserve_cancelled_as_the_loop_ends_has_nothing(
    line: Line, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    line.slow()
    known: dict[AsyncQueue[str], set[str]] = {}

    async def one(moment: float) -> None:
        queue = AsyncQueue(redis=line.url)
        await queue.enqueue("a")
        task = asyncio.create_task(queue.reserve())
        await asyncio.sleep(moment)
        for _ in range(times):
            task.cancel()
            if times > 1:
                await asyncio.sleep(0)
        # Nobody awaits the task: its queue is closed, and asyncio.run cancels it once more.
        await queue.close()
        known[queue] = {task.result().id} if task.done() and not task.cancelled() else set()

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for step in range(24):
                group.create_task(one(0.01 + step * 0.18 / 23))

    for _ in range(2):
        known.clear()
        asyncio.run(all_of_them())
        assert {queue: line.in_flight(queue) for queue in known} == known
        for queue in known:
            line.raw.delete(*queue._definition.keys)
    assert not [record for record in caplog.records if record.name == "durableq"]


@pytest.mark.parametrize("moment", [0.03, 0.07, 0.12])
def test_a_reserve_cancelled_as_the_last_thing_of_all_has_nothing(
    line: Line, caplog: pytest.LogCaptureFixture, moment: float
) -> None:
    line.slow()

    async def main() -> tuple[str, set[str]]:
        queue = AsyncQueue(redis=line.url)
        await queue.enqueue("a")
        task = asyncio.create_task(queue.reserve())
        await asyncio.sleep(moment)
        task.cancel()
        return queue.name, {task.result().id} if task.done() else set()

    name, known = asyncio.run(main())

    with warnings.catch_warnings(action="ignore"):
        gc.collect()  # the queue was still open as the loop ended
    with Queue(name, redis=line.url) as queue:
        assert line.in_flight(queue) == known
        queue.destroy()
    assert not [record for record in caplog.records if record.name == "durableq"]


def test_a_timeout_around_a_reserve_leaves_the_job_waiting(line: Line) -> None:
    line.slow()

    async def main() -> None:
        async with AsyncQueue(redis=line.url, max_attempts=1) as queue:
            await queue.enqueue("a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.07):
                    await queue.reserve()
            assert not line.in_flight(queue)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queue.reserve(wait=LONG), 0.07)
            assert not line.in_flight(queue)
            assert (await queue.reserve()).attempt == 3
            await queue.destroy()

    asyncio.run(main())


def test_a_wait_is_cancelled_while_it_sleeps(line: Line) -> None:
    async def main() -> None:
        async with AsyncQueue(redis=line.url) as queue:
            task = asyncio.create_task(queue.reserve(wait=LONG))
            await until(lambda: line.raw.info("clients")["blocked_clients"] == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await queue.enqueue("a")
            assert (await queue.reserve()).attempt == 1
            await queue.destroy()
        await until(lambda: line.raw.info("clients")["blocked_clients"] == 0)

    asyncio.run(main())


def test_a_wait_is_cancelled_at_any_moment_of_its_waking(line: Line) -> None:
    line.slow()

    async def one(moment: float) -> None:
        async with AsyncQueue(redis=line.url, max_attempts=1) as queue:
            task = asyncio.create_task(queue.reserve(wait=LONG))
            await asyncio.sleep(0.15)
            await queue.enqueue("a")
            await asyncio.sleep(moment)
            task.cancel()
            try:
                assert (await task).id == "a"
            except asyncio.CancelledError:
                assert not line.in_flight(queue)
                assert (await queue.reserve()).id == "a"
            await queue.destroy()

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for step in range(16):
                group.create_task(one(step * 0.18 / 15))

    asyncio.run(all_of_them())


def test_under_load_every_job_is_known_to_somebody_or_waits(line: Line) -> None:
    chance = random.Random(1)
    ids = {f"job-{i:03}" for i in range(300)}
    got: set[str] = set()
    cancelled = 0

    async def main() -> None:
        nonlocal cancelled
        async with AsyncQueue(redis=line.real.url, max_attempts=1) as queue:

            async def work() -> None:
                for _ in range(30):
                    job = await queue.reserve(wait=0.05)
                    if job is not None:
                        got.add(job.id)

            async def produce() -> None:
                for id in sorted(ids):
                    await queue.enqueue(id)

            async def hesitate() -> None:
                nonlocal cancelled
                for _ in range(20):
                    task = asyncio.create_task(queue.reserve(wait=0.05))
                    await asyncio.sleep(chance.random() * 0.01)
                    task.cancel()
                    try:
                        job = await task
                    except asyncio.CancelledError:
                        cancelled += 1
                    else:
                        got.update([job.id] if job else [])

            async with asyncio.TaskGroup() as group:
                for _ in range(10):
                    group.create_task(hesitate())
                for _ in range(4):
                    group.create_task(work())
                group.create_task(produce())

            assert line.in_flight(queue) == got
            rest = await queue.execute([operations.reserve()] * len(ids))
            waiting = {outcome.job.id for outcome in rest if outcome.job}
            assert not waiting & got
            assert waiting | got == ids
            await queue.destroy()

    asyncio.run(main())
    assert cancelled > 20


def test_with_a_request_of_the_users_a_cancelled_reserve_keeps_its_job(line: Line) -> None:
    fault = line.proxy.fault("reserve", hang=True)

    async def main() -> None:
        async with AsyncQueue(redis=line.url) as queue:
            await queue.enqueue("a")
            task = asyncio.create_task(queue.reserve(request="mine"))
            await until(lambda: fault.reply)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert line.in_flight(queue) == {"a"}
            job = await queue.reserve(request="mine")
            assert (job.id, job.attempt) == ("a", 1)
            await queue.destroy()

    asyncio.run(main())


def test_a_cancelled_reserve_does_not_wait_long_for_a_server_that_is_away(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    fault = line.proxy.fault("reserve", hang=True)

    async def main() -> None:
        async with AsyncQueue(redis=line.url) as queue:
            await queue.enqueue("a")
            task = asyncio.create_task(queue.reserve())
            await until(lambda: fault.reply)
            line.proxy.go()
            start = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - start < 6
            assert line.in_flight(queue) == {"a"}
            line.proxy.come_back()
            await queue.destroy()
        assert queue.name in caplog.text

    with caplog.at_level(logging.WARNING, "durableq"):
        asyncio.run(main())
    assert [record.levelname for record in caplog.records if record.name == "durableq"] == [
        "WARNING"
    ]


@pytest.mark.parametrize("inside", [True, False])
def test_a_second_interrupt_of_an_asynchronous_reserve_gives_back_or_is_told(
    line: Line,
    alarm: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    inside: bool,
) -> None:
    alarm(KeyboardInterrupt)
    fault = line.proxy.fault("reserve", hang=True)
    names: list[str] = []

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        async with AsyncQueue(redis=line.url) as queue:
            names.append(queue.name)
            await queue.enqueue("a")
            task = asyncio.create_task(queue.reserve())
            await until(lambda: fault.reply)
            if inside:
                monkeypatch.setattr(AsyncClient, "hurried", interrupt)
            else:
                line.proxy.fault("reserve", harmless=True, before=strike)
            task.cancel()
            await task

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    with warnings.catch_warnings():
        # The loop was torn from what it did, and leaves a socket that nobody can close any more.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()

    with Queue(names[0], redis=line.real.url) as queue:
        told = f"queue {queue.name!r}" in caplog.text
        assert told or not (inside or line.in_flight(queue))
        queue.destroy()


def test_a_cancelled_list_gives_back_what_it_has_reserved(line: Line) -> None:
    ids = [f"job-{i:02}" for i in range(40)]
    fault = line.proxy.fault("reserve", skip=1, hang=True)

    async def main() -> None:
        async with AsyncQueue(redis=line.url, max_attempts=1) as queue:
            await queue.execute([operations.enqueue(id) for id in ids])
            task = asyncio.create_task(queue.execute([operations.reserve()] * len(ids)))
            await until(lambda: fault.reply)
            assert len(line.in_flight(queue)) > 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not line.in_flight(queue)
            again = await queue.execute([operations.reserve()] * len(ids))
            assert [outcome.job.id for outcome in again] == ids
            await queue.destroy()

    asyncio.run(main())


@pytest.mark.parametrize("verb", ["reserve_many", "exchange"])
def test_cancelled_many_are_given_back(line: Line, verb: str) -> None:
    ids = [f"job-{i:03}" for i in range(150)]
    fault = line.proxy.fault("reserve", skip=1 + int(verb == "reserve_many"), hang=True)

    async def main() -> None:
        async with AsyncQueue(redis=line.url) as queue:
            await queue.enqueue_many([(id, "") for id in ids])
            held = await queue.reserve_many(1)
            call = queue.exchange(held, 100) if verb == "exchange" else queue.reserve_many(149)
            task = asyncio.create_task(call)
            await until(lambda: fault.reply)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert line.in_flight(queue) == (set() if verb == "exchange" else {ids[0]})
            assert [job.id for job in await queue.reserve_many(149)] == ids[1:]
            await queue.destroy()

    asyncio.run(main())


def test_a_cancelled_list_of_several_kinds_gives_back_what_it_has_reserved(line: Line) -> None:
    fault = line.proxy.fault("reserve", skip=1, hang=True)

    async def main() -> None:
        async with AsyncQueue(redis=line.url) as queue:
            await queue.execute([operations.enqueue("a"), operations.enqueue("b")])
            job = await queue.reserve()
            batch = [operations.ack(job.id, job.attempt), operations.reserve()]
            task = asyncio.create_task(queue.execute(batch))
            await until(lambda: fault.reply)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            left = line.in_flight(queue)
            await queue.destroy()
        assert not left

    asyncio.run(main())


def test_a_reserve_cancelled_while_its_listener_is_closed_has_nothing(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget = Listener._forget

    async def main() -> None:
        async with AsyncQueue(redis=line.real.url) as queue:
            await queue.enqueue("a")
            await queue.reserve(lease=0.2)
            bell = queue._definition.keys[PARTS.index("bell")]
            line.raw.delete(bell)
            client = line.real.async_client()
            other = asyncio.create_task(client.blpop(bell, LONG))  # it takes the ring
            await until(lambda: line.raw.info("clients")["blocked_clients"] == 1)
            task = asyncio.create_task(queue.reserve(wait=LONG))

            async def closing(self: Listener) -> None:
                asyncio.get_running_loop().call_soon(task.cancel)
                await forget(self)

            monkeypatch.setattr(Listener, "_forget", closing)
            try:
                known = {(await task).id}
            except asyncio.CancelledError:
                known = set()
            left = line.in_flight(queue)
            await other
            await client.aclose()
            await queue.destroy()
        assert left == known

    asyncio.run(main())


# Interrupted


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Mine, ValueError])
@pytest.mark.parametrize("delivered", [True, False])
def test_an_interrupted_reserve_has_nothing(
    line: Line, alarm: Any, kind: type[BaseException], delivered: bool
) -> None:
    alarm(kind)
    with Queue(redis=line.url, max_attempts=1) as queue:
        queue.enqueue("a")
        if delivered:
            line.proxy.fault("reserve", hang=True, after=strike)
        else:
            line.proxy.fault("reserve", hang=True, before=strike)

        with pytest.raises(kind):
            queue.reserve()

        assert not line.in_flight(queue)
        job = queue.reserve()
        assert job is not None
        assert job.attempt == 2
        queue.destroy()


def test_an_interrupted_wait_has_nothing(line: Line, alarm: Any) -> None:
    alarm(KeyboardInterrupt)
    with Queue(redis=line.url) as queue:
        line.proxy.fault("blpop", harmless=True, before=strike)

        with pytest.raises(KeyboardInterrupt):
            queue.reserve(wait=LONG)

        queue.enqueue("a")
        job = queue.reserve()
        assert job is not None
        assert job.attempt == 1
        queue.destroy()


def test_with_a_request_of_the_users_an_interrupted_reserve_keeps_its_job(
    line: Line, alarm: Any
) -> None:
    alarm(KeyboardInterrupt)
    with Queue(redis=line.url) as queue:
        queue.enqueue("a")
        line.proxy.fault("reserve", hang=True, after=strike)
        with pytest.raises(KeyboardInterrupt):
            queue.reserve(request="mine")

        assert line.in_flight(queue) == {"a"}
        job = queue.reserve(request="mine")
        assert job is not None
        assert (job.id, job.attempt) == ("a", 1)
        queue.destroy()


def test_an_interrupted_list_gives_back_what_it_has_reserved(line: Line, alarm: Any) -> None:
    alarm(KeyboardInterrupt)
    ids = [f"job-{i:02}" for i in range(40)]
    with Queue(redis=line.url, max_attempts=1) as queue:
        queue.execute([operations.enqueue(id) for id in ids])
        line.proxy.fault("reserve", skip=1, hang=True, after=strike)

        with pytest.raises(KeyboardInterrupt):
            queue.execute([operations.reserve()] * len(ids))

        assert not line.in_flight(queue)
        again = queue.execute([operations.reserve()] * len(ids))
        assert [outcome.job.id for outcome in again if outcome.job] == ids
        queue.destroy()


def test_an_interrupted_reserve_does_not_wait_long_for_a_server_that_is_away(
    line: Line, alarm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    alarm(KeyboardInterrupt)

    def away() -> None:
        line.proxy.go()
        strike()

    with Queue(redis=line.url) as queue:
        queue.enqueue("a")
        line.proxy.fault("reserve", hang=True, after=away)
        start = time.monotonic()
        with caplog.at_level(logging.WARNING, "durableq"), pytest.raises(KeyboardInterrupt):
            queue.reserve()

        assert time.monotonic() - start < 6
        assert queue.name in caplog.text
        line.proxy.come_back()
        queue.destroy()


def test_an_interrupted_reserve_does_not_wait_long_for_a_frozen_server(
    line: Line, alarm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durableq.policy.GIVE_BACK", 0.2)
    alarm(KeyboardInterrupt)
    with Queue(redis=f"{line.url}?socket_timeout=2") as queue:
        queue.enqueue("a")
        line.proxy.fault("reserve", hang=True, after=strike)
        line.proxy.fault("reserve", hang=True, times=5)
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            queue.reserve()

        took = time.monotonic() - start
        line.proxy.come_back()
        queue.destroy()
    assert took < 1.5


def test_an_interruption_while_the_answer_is_taken_in_does_not_go_on_forever(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, commands = Delivery._fill, Delivery.commands
    armed: list[int] = []
    asked: list[int] = []

    class Window(list[Any]):
        def pop(self, *index: Any) -> Any:
            if armed:
                armed.clear()
                raise KeyboardInterrupt
            return super().pop(*index)

    def watched(self: Delivery) -> Any:
        asked.append(1)
        if len(asked) > 20:
            raise Mine
        return commands(self)

    def filled(self: Delivery) -> None:
        fill(self)
        self._window = Window(self._window)

    with Queue(redis=line.real.url) as queue:
        queue.enqueue("a")
        monkeypatch.setattr(Delivery, "_fill", filled)
        monkeypatch.setattr(Delivery, "commands", watched)
        armed.append(1)
        with pytest.raises((KeyboardInterrupt, Mine)) as caught:
            queue.reserve()
        monkeypatch.undo()
        left = line.in_flight(queue)
        queue.destroy()
    assert caught.type is KeyboardInterrupt
    assert not left


def test_other_calls_give_nothing_back(line: Line, alarm: Any) -> None:
    alarm(KeyboardInterrupt)
    with Queue(redis=line.url) as queue:
        line.proxy.fault("enqueue", hang=True, after=strike)
        with pytest.raises(KeyboardInterrupt):
            queue.enqueue("a")

        assert "release" not in line.proxy.seen
        assert queue.enqueue("a") is False
        queue.destroy()


def test_interrupted_twice_it_ends(line: Line, alarm: Any) -> None:
    alarm(KeyboardInterrupt)
    with Queue(redis=line.url) as queue:
        queue.enqueue("a")
        line.proxy.fault("reserve", hang=True, after=strike)
        line.proxy.fault("reserve", hang=True, after=strike)
        with pytest.raises(KeyboardInterrupt):
            queue.reserve()

        job = queue.execute(operations.reserve())  # the connection is sound
        assert not job
        queue.destroy()


INSIDE = {f"{module}.py" for module in ("calls", "client", "delivery", "operations", "replies")}


def test_a_reserve_interrupted_at_any_line_has_nothing(line: Line) -> None:
    """At each in turn, from its first to the last before its caller has the job."""
    with Queue(redis=line.real.url) as queue:
        queue.enqueue("a")
        at, interrupted = 0, True
        while interrupted:
            at += 1
            left = at

            def each(frame: Any, event: str, arg: Any) -> Any:
                nonlocal left
                if Path(frame.f_code.co_filename).name not in INSIDE:
                    return None
                left -= event == "line"
                if left == 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
                return each

            before = sys.gettrace()
            sys.settrace(each)
            try:
                job = queue.reserve()
                interrupted = False
            except KeyboardInterrupt:
                job = None
            finally:
                sys.settrace(before)
            assert line.in_flight(queue) == ({job.id} if job else set()), at
        assert at > 50
        queue.destroy()


@pytest.mark.parametrize("verb", ["reserve_many", "exchange"])
def test_interrupted_many_are_given_back(line: Line, alarm: Any, verb: str) -> None:
    alarm(KeyboardInterrupt)
    ids = [f"job-{i:03}" for i in range(150)]
    with Queue(redis=line.url) as queue:
        queue.enqueue_many([(id, "") for id in ids])
        held = queue.reserve_many(1)
        line.proxy.fault("reserve", skip=int(verb == "reserve_many"), hang=True, after=strike)
        args: tuple[Any, ...] = (held, 100) if verb == "exchange" else (149,)

        with pytest.raises(KeyboardInterrupt):
            getattr(queue, verb)(*args)

        assert line.in_flight(queue) == (set() if verb == "exchange" else {ids[0]})
        assert [job.id for job in queue.reserve_many(149)] == ids[1:]
        queue.destroy()


def test_who_interrupts_even_the_giving_back_is_told_so(
    line: Line, alarm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    alarm(KeyboardInterrupt)
    with Queue(redis=line.url) as queue:
        queue.enqueue("a")
        line.proxy.fault("reserve", hang=True, after=strike)
        line.proxy.fault("release", hang=True, delivered=False, before=strike)

        with pytest.raises(KeyboardInterrupt):
            queue.reserve()

        assert line.in_flight(queue) == {"a"}
        assert "KeyboardInterrupt" in caplog.text
        assert queue.name in caplog.text


def test_an_interrupted_reserve_gives_back_though_its_queue_is_closed_meanwhile(
    line: Line, alarm: Any
) -> None:
    alarm(KeyboardInterrupt)
    queue = Queue(redis=line.url)
    queue.enqueue("a")

    def close() -> None:
        queue.close()
        strike()

    line.proxy.fault("reserve", hang=True, after=close)
    with pytest.raises(KeyboardInterrupt):
        queue.reserve()

    assert not line.in_flight(queue)
    line.raw.delete(*queue._definition.keys)
