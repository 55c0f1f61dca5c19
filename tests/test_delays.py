"""Delays: jobs for later, by the server's clock."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from support import Backend, Lab, await_true, taken

from durableq import InvalidArgument, Job, Outcome, Queue, Reason, operations, policy

LAST = datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)


def arrive(lab: Lab, queue: Any, *ids: str, at: int = 1) -> None:
    """Let the delay of these jobs (of none: of all) have ended at this moment."""
    key = lab.key(queue, "delayed")
    for member in lab.raw.zrange(key, 0, -1):
        if not ids or member[13:].decode() in ids:
            lab.raw.zadd(key, {member: at})


def server_now(lab: Lab) -> datetime:
    seconds, micros = lab.raw.time()
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)


def test_a_delayed_job_waits_from_its_time_on(lab: Lab) -> None:
    queue = lab.queue(capacity=2)

    assert queue.enqueue("later", "L", delay=3600) is True
    assert queue.enqueue("now") is True

    assert taken(queue) == ["now"]
    full = queue.execute(operations.enqueue("third"))
    assert (full.reason, full.occupancy.delayed, full.occupancy.in_flight) == (Reason.FULL, 1, 1)
    arrive(lab, queue)
    assert queue.reserve() == Job("later", "L", 1)


def test_due_jobs_join_the_tail_by_due_time_then_insertion(lab: Lab) -> None:
    queue = lab.queue()
    for id in ("d", "c", "b", "a"):
        queue.enqueue(id, delay=3600)
    queue.enqueue("waits")
    arrive(lab, queue, "a", at=5)
    arrive(lab, queue, "c", "b", at=7)
    arrive(lab, queue, "d", at=6)

    assert taken(queue) == ["waits", "a", "d", "c", "b"]


def test_due_jobs_and_expired_leases_are_merged_by_time(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    queue.execute([operations.enqueue(id) for id in "ab"])
    queue.execute([operations.reserve()] * 2)
    queue.enqueue("c", delay=3600)
    queue.enqueue("d", delay=3600)
    ends = {"b": 3, "a": 9}
    key = lab.key(queue, "leases")
    for member in lab.raw.zrange(key, 0, -1):
        lab.raw.zadd(key, {member: ends[member[13:].decode()]})
    arrive(lab, queue, "d", at=3)
    arrive(lab, queue, "c", at=8)

    outcome = queue.reap()

    assert (outcome.returned, outcome.promoted) == (("b", "a"), ("d", "c"))
    assert taken(queue) == ["b", "d", "c", "a"]


def test_a_due_job_joins_its_own_priority(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("high", delay=3600, priority=5)
    queue.enqueue("low", delay=3600, priority=-5)
    queue.enqueue("plain")
    arrive(lab, queue)

    assert taken(queue) == ["high", "plain", "low"]


def test_a_delayed_job_can_be_cancelled(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("a", delay=3600)

    assert queue.cancel("a") is True

    assert queue.enqueue("b") is True
    assert lab.raw.zcard(lab.key(queue, "delayed")) == 0


def test_a_retry_with_a_delay_comes_back_later_and_keeps_its_room(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("a", priority=3)
    queue.reserve()

    assert queue.retry("a", 1, delay=timedelta(minutes=1), error="busy") is True

    assert queue.retry("a", 1) is False
    assert queue.ack("a", 1) is False
    assert queue.execute(operations.retry("a", 1)).reason is Reason.DELAYED
    assert queue.enqueue("b") is False
    view = queue.get("a")
    assert (view.state, view.priority, view.error) == (Reason.DELAYED, 3, "busy")
    assert abs(view.due_at - server_now(lab) - timedelta(minutes=1)) < timedelta(seconds=5)
    assert queue.reserve() is None
    arrive(lab, queue)
    assert queue.reserve() == Job("a", "", 2)


def test_at_the_limit_a_retry_with_a_delay_has_failed(lab: Lab) -> None:
    queue = lab.queue(max_attempts=1)
    queue.enqueue("a")
    queue.reserve()

    assert queue.retry("a", 1, delay=60) is True

    assert queue.get("a").state is Reason.FAILED


@pytest.mark.parametrize(
    "at",
    [
        LAST,
        datetime(9999, 12, 31, 12, tzinfo=UTC),
        datetime(2100, 2, 28, 23, 59, 59, 1000, tzinfo=timezone(timedelta(hours=-11))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
        datetime.max.replace(tzinfo=UTC),
    ],
    ids=str,
)
def test_a_moment_is_stored_exactly(lab: Lab, at: datetime) -> None:
    queue = lab.queue()

    queue.enqueue("a", at=at)

    later = at.replace(microsecond=999000) if at.microsecond == 999999 else at
    if at.year == 9999 and at.tzinfo is not UTC:
        later = LAST  # what no datetime in UTC can be
    assert queue.get("a").due_at == later
    (job,) = queue.jobs("delayed").jobs
    assert job.due_at == later


def test_no_delay_or_a_moment_that_has_passed_is_now(lab: Lab) -> None:
    queue = lab.queue()
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)]
    moments += [server_now(lab) - timedelta(seconds=1)]
    for number, at in enumerate(moments):
        assert queue.enqueue(f"m{number}", at=at) is True
    for id, delay in (("none", None), ("zero", 0), ("zero2", 0.0), ("zero3", timedelta(0))):
        assert queue.enqueue(id, delay=delay) is True

    assert taken(queue) == ["m0", "m1", "m2", "none", "zero", "zero2", "zero3"]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, InvalidArgument),
        (-1e-9, InvalidArgument),
        (math.nan, InvalidArgument),
        (math.inf, InvalidArgument),
        (-math.inf, InvalidArgument),
        (1e18, InvalidArgument),
        (10**400, InvalidArgument),
        (timedelta(seconds=-1), InvalidArgument),
        (timedelta.max, InvalidArgument),
        (True, TypeError),
        ("5", TypeError),
        (datetime(2100, 1, 1, tzinfo=UTC), TypeError),
    ],
    ids=repr,
)
def test_a_delay_that_cannot_be_used_is_refused(lab: Lab, value: Any, error: type) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    before = lab.dump(queue)

    for call in (
        lambda: queue.enqueue("b", delay=value),
        lambda: queue.retry("a", 1, delay=value),
        lambda: queue.reschedule("a", delay=value),
    ):
        with pytest.raises(error, match="a delay"):
            call()

    assert lab.dump(queue) == before


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (datetime(2100, 1, 1), InvalidArgument),  # noqa: DTZ001
        (datetime(2100, 1, 1, tzinfo=UTC).timestamp(), TypeError),
        (datetime(2100, 1, 1, tzinfo=UTC).date(), TypeError),
        ("2100-01-01T00:00:00Z", TypeError),
        (timedelta(1), TypeError),
    ],
    ids=repr,
)
def test_a_moment_that_cannot_be_used_is_refused(lab: Lab, value: Any, error: type) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    before = lab.dump(queue)

    with pytest.raises(error, match=r"^at[ =]"):
        queue.enqueue("b", at=value)
    with pytest.raises(error, match=r"^at[ =]"):
        queue.reschedule("a", at=value)
    with pytest.raises(InvalidArgument, match="use one of them"):
        queue.enqueue("b", at=datetime.now(UTC), delay=0)

    assert lab.dump(queue) == before


def test_rescheduling_moves_a_job_between_waiting_and_delayed(lab: Lab) -> None:
    queue = lab.queue()
    queue.execute([operations.enqueue(id) for id in "abc"])
    queue.enqueue("d", delay=3600)

    assert queue.reschedule("a", delay=3600) is True
    assert queue.reschedule("d", delay=0) is True
    assert queue.reschedule("b", at=LAST) is True

    assert queue.get("b").due_at == LAST
    assert taken(queue) == ["c", "d"]
    arrive(lab, queue)
    assert taken(queue) == ["a", "b"]


def test_a_delayed_job_of_a_new_priority_keeps_its_time_and_place(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a", at=LAST)
    queue.enqueue("b", at=LAST)

    assert queue.reschedule("a", priority=7) is True

    assert [job.id for job in queue.jobs("delayed").jobs] == ["a", "b"]
    assert queue.get("a").due_at == LAST
    assert queue.get("a").priority == 7


def test_reserve_tells_when_the_next_delay_ends(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    queue.enqueue("a")
    queue.reserve()
    queue.enqueue("b", delay=30)

    outcome = queue.execute(operations.reserve())

    assert outcome.reason is Reason.EMPTY
    assert 25 < outcome.due <= 30
    assert 25 < queue.reap().due <= 30


def test_a_batch_of_delayed_jobs_is_as_if_one_after_another(lab: Lab) -> None:
    queue = lab.queue(capacity=2)

    outcomes = queue.execute(
        [
            operations.enqueue("a", delay=5),
            operations.enqueue("a"),
            operations.enqueue("b", priority=2),
            operations.enqueue("c", delay=0),
        ]
    )

    assert [outcome.reason for outcome in outcomes] == ["done", "duplicate", "done", "full"]
    assert outcomes[3].occupancy.delayed == 1
    queue.reserve()
    done, refused = queue.execute([operations.retry("b", 1, delay=9), operations.retry("b", 1)])
    assert (done, refused) == (Outcome(Reason.DONE), Outcome(Reason.DELAYED))


def test_100_000_jobs_due_in_one_second_are_promoted_in_bounded_steps(real: Backend) -> None:
    """Shorter here: benchmarks/growth.py takes them all, and takes the time."""
    with real.client() as raw, Queue(redis=real.url) as queue:
        many = 2000
        queue.execute([operations.enqueue(f"j{i}", delay=3600) for i in range(many)])
        key = queue._definition.keys[4]
        for member, _ in raw.zscan_iter(key, count=1000):
            raw.zadd(key, {member: 1})

        first = queue.execute(operations.reserve())

        assert first.job.id == "j0"
        assert queue.counts().delayed == many - 64
        outcomes = queue.execute([operations.reserve()] * (many - 1))
        assert [outcome.job.id for outcome in outcomes] == [f"j{i}" for i in range(1, many)]
        assert queue.reserve() is None
        queue.destroy()


@pytest.mark.parametrize("verb", ["enqueue", "retry", "reschedule"])
def test_who_waits_wakes_for_a_job_that_is_due_soon(
    real: Backend, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(policy, "LONGEST_SLEEP", 60)  # who is not woken does not look again
    with Queue(redis=real.url) as queue, ThreadPoolExecutor(1) as pool:
        queue.enqueue("a", **({"delay": 3600} if verb == "reschedule" else {}))
        if verb != "reschedule":
            queue.reserve()
        waiting = pool.submit(queue.reserve, wait=60)
        with real.client() as raw:
            await_true(lambda: raw.info("clients")["blocked_clients"] == 1)
        start = time.monotonic()
        if verb == "enqueue":
            queue.enqueue("b", delay=0.3)
        elif verb == "retry":
            queue.retry("a", 1, delay=0.3)
        else:
            queue.reschedule("a", delay=0.3)

        job = waiting.result(timeout=20)

        assert job is not None
        assert time.monotonic() - start > 0.25
        queue.destroy()
