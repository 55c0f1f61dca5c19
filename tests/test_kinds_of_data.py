"""Faults that other queues had, each as its whole kind, on a real server.

Time, cancel, large queues, payloads and ids, fairness. The other kinds are in test_kinds.py.
"""

import random
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from support import Backend, Lab, dump

from durableq import BYTES, InvalidName, InvalidPayload, Queue, Reason, operations
from durableq.keys import PARTS


def key(queue: Any, part: str) -> bytes:
    return queue._definition.keys[PARTS.index(part)]


def calls(raw: redis.Redis) -> dict[str, int]:
    """How often each command has run, those within scripts included."""
    stats = raw.info("commandstats")
    return {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}


def made_by(raw: redis.Redis, call: Callable[[], object]) -> dict[str, int]:
    before = calls(raw)
    call()
    after = calls(raw)
    looks = ("info", "config|resetstat")
    return {
        name: number - before.get(name, 0)
        for name, number in after.items()
        if number != before.get(name, 0) and name not in looks
    }


# Time


@pytest.mark.parametrize("skew", [-600.0, 600.0, -(10.0**9), 10.0**10])
def test_time_is_the_servers_whatever_the_clients_clock_says(
    real: Backend, monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + skew * random.choice([1, 2, -1]))
    with real.client() as raw, Queue(redis=real.url, lease=60) as queue:
        queue.enqueue("now")
        queue.enqueue("later", delay=60)
        queue.enqueue("passed", at=datetime.fromtimestamp(raw.time()[0] - 5, UTC))
        assert queue.reserve().id == "now"
        assert queue.reserve().id == "passed"
        assert queue.reserve(wait=0.05) is None
        seconds, _ = raw.time()
        due, end = queue.get("later").due_at.timestamp(), queue.get("now").lease_ends_at.timestamp()
        assert 55 < due - seconds <= 61
        assert 55 < end - seconds <= 61
        assert queue.extend("now", 1) is True
        assert not queue.reap()
        assert queue.ack("now", 1) is True
        queue.destroy()


def test_time_no_delay_makes_whoever_waits_run_in_circles(real: Backend) -> None:
    with real.client() as raw, Queue(redis=real.url) as queue:
        for number, delay in enumerate((1e-9, 0.001, 0.2, 3600, timedelta(days=36500))):
            queue.enqueue(f"j{number}", delay=delay)
        queue.enqueue("last", at=datetime.max.replace(tzinfo=UTC))
        made: dict[str, int] = {}
        jobs: list[Any] = []

        def wait() -> None:
            jobs.extend(queue.reserve(wait=1) for _ in range(4))

        made = made_by(raw, wait)
        assert [job and job.id for job in jobs] == ["j0", "j1", "j2", None]
        assert made["evalsha"] < 30
        queue.destroy()


# Cancel


def test_cancel_races_with_reserve_and_ack_and_one_of_them_wins(real: Backend) -> None:
    number = 2000
    with Queue(redis=real.url) as queue, ThreadPoolExecutor(2) as pool:
        queue.execute([operations.enqueue(f"j{at}", delay=0) for at in range(number)])

        def work() -> dict[str, bool]:
            done = {}
            while job := queue.reserve():
                done[job.id] = queue.ack(job.id, job.attempt)
            return done

        def cancel() -> dict[str, bool]:
            return {f"j{at}": queue.cancel(f"j{at}") for at in range(number)}

        cancelling, working = pool.submit(cancel), pool.submit(work)
        cancelled, acked = cancelling.result(timeout=120), working.result(timeout=120)
        acked = {f"j{at}": acked.get(f"j{at}", False) for at in range(number)}

        assert all(cancelled[id] != acked[id] for id in cancelled)
        for id, won in cancelled.items():
            how = Reason.CANCELLED if won else Reason.FINISHED
            assert queue.execute(operations.cancel(id)).reason is how
            if int(id[1:]) > 200:
                break
        assert queue.counts().retired == number
        queue.destroy()


def test_cancel_what_comes_late_recreates_nothing(real: Backend) -> None:
    """Whatever is asked of ids that are gone or were never there, and by however many at once."""
    chance = random.Random(5)
    with real.client() as raw, Queue(redis=real.url, lease=60) as queue:
        for id in ("acked", "cancelled", "purged"):
            queue.enqueue(id)
            queue.reserve()
        queue.ack("acked", 1)
        queue.cancel("cancelled")
        queue.fail("purged", 1)
        queue.purge_failed()
        gone = ("acked", "cancelled", "purged", "never", "\0", "")
        late = [
            *(getattr(operations, verb)(id, 1) for verb in HELD for id in gone),
            *(operations.cancel(id) for id in gone),
            *(operations.redrive(id) for id in gone),
            *(operations.reschedule(id, delay=5, priority=1) for id in gone),
            *(operations.retry(id, 1, delay=5) for id in gone),
            *(operations.enqueue(id) for id in gone[:3]),
            operations.reap(),
            operations.reserve(),
        ]
        before = dump(raw, queue._definition.keys)

        def ask(seed: int) -> list[bool]:
            mixed = random.Random(seed).sample(late, len(late))
            return [bool(queue.execute(operation)) for operation in mixed]

        with ThreadPoolExecutor(8) as pool:
            for answers in pool.map(ask, [chance.random() for _ in range(16)]):
                assert not any(answers)
        assert dump(raw, queue._definition.keys) == before
        queue.destroy()


HELD = ("ack", "retry", "fail", "release", "extend")


# Large queues


def commands_of_each_call(raw: redis.Redis, queue: Queue[str], number: int) -> dict[str, Any]:
    """What single calls run on the server, on a queue of so many waiting jobs."""
    queue.execute([operations.enqueue(f"j{at}", priority=at % 2) for at in range(number)])
    half, held = number // 2, []
    steps: dict[str, Callable[[], object]] = {
        "enqueue": lambda: queue.enqueue("new"),
        "reserve": lambda: held.append(queue.reserve()),
        "extend": lambda: queue.extend(held[0].id, 1, 60),
        "retry": lambda: queue.retry(held[0].id, 1),
        "reserve again": lambda: held.append(queue.reserve()),
        "ack": lambda: queue.ack(held[1].id, held[1].attempt),
        "cancel": lambda: queue.cancel(f"j{half}"),
        "reschedule": lambda: queue.reschedule(f"j{half + 2}", delay=60),
        "counts": queue.counts,
        "get": lambda: queue.get(f"j{half + 4}"),
        "peek": lambda: queue.peek(5),
        "jobs": lambda: queue.jobs("waiting", count=50),
        "reap": queue.reap,
        "position": lambda: queue.position(f"j{half + 4}"),
    }
    return {name: made_by(raw, step) for name, step in steps.items()}


def test_large_queues_cost_no_call_more_than_small_ones(real: Backend) -> None:
    made = []
    for number in (10, 400, 20_000):  # the first only loads the scripts
        with real.client() as raw, Queue(redis=real.url) as queue:
            made.append(commands_of_each_call(raw, queue, number))
            queue.destroy()

    _, small, large = made
    looks = [each["position"].pop("lindex") for each in (small, large)]
    assert looks[1] <= looks[0] + 10, "it is found by halving"
    assert small == large


def test_large_queues_of_failures_leave_only_their_ids(real: Backend) -> None:
    number = 1000
    with real.client() as raw, Queue(redis=real.url, keep_failed=50) as queue:
        queue.execute([operations.enqueue(f"j{at}", "x" * 1000) for at in range(number)])
        for outcome in queue.execute([operations.reserve()] * number):
            job = outcome.job
            if int(job.id[1:]) % 4:
                queue.ack(job.id, 1)
            else:
                queue.fail(job.id, 1, error="é" * 100_000)

        assert queue.counts().failed == 50
        assert raw.hlen(key(queue, "errors")) == 50
        assert all(len(text) <= 4096 for text in raw.hvals(key(queue, "errors")))
        queue.purge_failed()
        left = {part for part in PARTS if raw.exists(key(queue, part))}
        assert left <= {"meta", "retired", "cancelled", "receipts", "bell"}
        assert raw.scard(key(queue, "retired")) == number
        assert raw.memory_usage(key(queue, "receipts"), samples=0) < 100_000
        queue.destroy()


def test_large_queues_whose_jobs_come_and_go_leave_only_their_ids(real: Backend) -> None:
    with real.client() as raw, Queue(redis=real.url, capacity=510) as queue:
        queue.execute([operations.enqueue(f"parked{at}") for at in range(500)])
        most = 0
        for start in range(0, 6000, 500):
            ids = [f"j{at}" for at in range(start, start + 500)]
            steps = [(operations.enqueue(id), operations.cancel(id)) for id in ids]
            assert all(queue.execute([step for pair in steps for step in pair]))
            most = max(most, raw.llen(key(queue, "waiting")) + raw.llen(key(queue, "front")))
        assert most < 3000
        assert raw.hlen(key(queue, "jobs")) == raw.hlen(key(queue, "payloads")) == 500
        queue.destroy()


# Payloads and ids

PAYLOADS = [
    b"",
    b"\0",
    b"\xff\xfe",
    bytes(range(256)) * 40,
    "\N{PILE OF POO}".encode(),
    b"1",
    b"\r\n",
]


@pytest.mark.parametrize("decoding", [False, True], ids=["bytes", "decode_responses"])
def test_payloads_and_ids_are_exact_however_the_users_client_decodes(
    real: Backend, decoding: bool
) -> None:
    with (
        real.client(decode_responses=decoding) as client,
        Queue(redis=client, codec=BYTES) as queue,
    ):
        for number, payload in enumerate(PAYLOADS):
            assert queue.enqueue(f"j{number}", payload, priority=-number) is True
        assert [job.payload for job in queue.peek(99, payload=True)] == PAYLOADS
        assert [queue.reserve().payload for _ in PAYLOADS] == PAYLOADS
        with pytest.raises(InvalidPayload, match="16000000 bytes"):
            queue.enqueue("large", b"x" * 16_000_000)
        queue.destroy()
    with Queue(redis=real.url) as text, pytest.raises(InvalidPayload):
        text.enqueue("lone", "\ud800")


GOOD = ["a:b", "123", "00123", "-1", "1e5", "a/b", "~", "x" * 128, "nan", "inf", "0", "=", "@"]
BAD = ["", " ", "a b", "a\n", "\0", "'", '"', "50%", "{x}", "x" * 129, "é", "é", "!a", "*a", "a,b"]


@pytest.mark.parametrize("id", GOOD)
def test_payloads_and_ids_that_are_allowed_go_all_the_way(lab: Lab, id: str) -> None:
    queue = lab.queue(lease=60, history=50)
    for name in (id, id[:-1] + "z"):
        assert queue.enqueue(name, name, priority=1, delay=60) is True
        assert queue.reschedule(name, delay=0) is True
        job = queue.reserve()
        assert (job.id, job.payload) == (name, name)
        assert queue.jobs("in_flight").jobs[0].id == queue.get(name).id == name
        assert queue.extend(name, 1) is True
        assert queue.release(name, 1) is True
        assert queue.position(name).at_most == 0
        assert queue.reserve().attempt == 2
        assert queue.retry(name, 2, delay=60) is True
        assert [view.id for view in queue.jobs("delayed").jobs] == [name]
        lab.raw.zadd(
            lab.key(queue, "delayed"), {lab.raw.zrange(lab.key(queue, "delayed"), 0, 0)[0]: 1}
        )
        assert queue.reap().promoted == (name,)
        assert queue.reserve().attempt == 3
        assert queue.execute(operations.fail(name, 3)).failed[0].id == name
        assert queue.redrive(name) is True
        assert queue.cancel(name) is True
        assert {each.id for each in queue.history(name)} == {name}


@pytest.mark.parametrize("id", BAD, ids=repr)
def test_payloads_and_ids_that_are_not_allowed_are_refused_by_the_rule(lab: Lab, id: str) -> None:
    queue = lab.queue()
    before = lab.dump(queue)

    with pytest.raises(InvalidName, match=re.escape("1 to 128 characters")):
        queue.enqueue(id)
    for ask in (queue.cancel, queue.position, queue.get, queue.redrive, queue.history):
        assert not ask(id)

    assert lab.dump(queue) == before


# Fairness


def test_fairness_is_strict_the_higher_priority_at_every_fetch(real: Backend) -> None:
    chance = random.Random(9)
    with Queue(redis=real.url) as queue:
        waiting: dict[int, list[str]] = {1: [], 0: [], -1: []}
        for number in range(600):
            if chance.random() < 0.55:
                priority = chance.choice([1, 0, 0, -1])
                queue.enqueue(f"j{number}", priority=priority)
                waiting[priority].append(f"j{number}")
            else:
                ids = next((ids for ids in waiting.values() if ids), None)
                job = queue.reserve()
                assert (job and job.id) == (ids.pop(0) if ids else None)
        queue.destroy()


def test_fairness_between_queues_is_the_workers_own(real: Backend) -> None:
    """Queues share nothing: a flood in one of them costs the other no turn."""
    with Queue(redis=real.url) as flooded, Queue(redis=real.url) as other:
        flooded.execute([operations.enqueue(f"j{at}") for at in range(5000)])
        other.enqueue("a")
        assert other.reserve().id == "a"
        flooded.destroy()
        other.destroy()
