"""Failed jobs: listed, put back to waiting, purged and trimmed; their ids stay retired."""

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import Backend, Lab, Record

from durableq import (
    JSON,
    DecodeError,
    FailureReason,
    InvalidArgument,
    Job,
    JobView,
    Keep,
    Outcome,
    Queue,
    Reason,
    Settings,
    SettingsMismatch,
    operations,
)
from durableq.definition import Definition

KEPT = ("failed", "failures", "payloads", "errors")
"""The parts that hold the records of failed jobs."""


def shift(lab: Lab, queue: Any, seconds: float, *ids: str) -> None:
    """Move the failures of these jobs (of none: of all) into the past."""
    key, records = lab.key(queue, "failed"), lab.key(queue, "failures")
    for member, at in lab.raw.zrange(key, 0, -1, withscores=True):
        id = member[13:].decode()
        if not ids or id in ids:
            lab.raw.zadd(key, {member: at - seconds * 1000}, xx=True)
            reason, record = lab.raw.hget(records, id).split(b" ", 1)
            record = Record.of(record).older(seconds).text()
            lab.raw.hset(records, id, reason + b" " + record)


def fail(queue: Any, *ids: str) -> None:
    """Enqueue jobs, and fail them in this order."""
    assert all(queue.execute([operations.enqueue(id, id.upper()) for id in ids]))
    taken = {}
    while len(taken) < len(ids):
        for outcome in queue.execute([operations.reserve()] * len(ids)):
            if outcome.job:
                taken[outcome.job.id] = outcome.job.attempt
    assert all(queue.execute([operations.fail(id, taken[id], error=f"no {id}") for id in ids]))


def listed(queue: Any) -> list[str]:
    return [job.id for job in queue.failed(0, 1000)]


def waiting(queue: Any) -> list[tuple[str, int]]:
    """Take all waiting jobs."""
    found = []
    while job := queue.reserve():
        found.append((job.id, job.attempt))
    return found


def reason(queue: Any, id: str) -> Reason:
    """Why a new job may not have this id."""
    return queue.execute(operations.enqueue(id, "again")).reason


# The list


def test_a_record_tells_everything_about_the_job(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    start = datetime.now(UTC)
    queue.enqueue("a", "A", max_attempts=5)
    queue.reserve(worker="w1")
    queue.retry("a", 1, error="first")
    queue.reserve(worker="w2")
    assert queue.fail("a", 2, error="second") is True

    (job,) = queue.failed()
    assert job == JobView(
        id="a",
        state=Reason.FAILED,
        priority=0,
        payload="A",
        attempt=2,
        spent=2,
        deaths=0,
        limit=5,
        reason=FailureReason.REJECTED,
        error="second",
        worker="w2",
        enqueued_at=job.enqueued_at,
        changed_at=job.failed_at,
    )
    second = timedelta(seconds=1)  # the server's clock has its own idea of a millisecond
    assert start - second < job.enqueued_at <= job.failed_at < datetime.now(UTC) + second
    assert job.failed_at.tzinfo is UTC
    shift(lab, queue, 7200)
    assert queue.failed()[0].failed_at == job.failed_at - timedelta(hours=2)


def test_without_failures_the_list_is_empty(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")

    assert queue.failed() == []


def test_the_newest_come_first_and_pages_join_without_a_seam(lab: Lab) -> None:
    queue = lab.queue()
    ids = [f"j{number}" for number in range(300)]
    fail(queue, *ids)
    newest = ids[::-1]

    assert [job.id for job in queue.failed()] == newest[:100]
    assert listed(queue) == newest
    for start, count in ((0, 1), (99, 2), (100, 100), (50, 200), (250, 100), (299, 1), (0, 300)):
        assert [job.id for job in queue.failed(start, count)] == newest[start : start + count]
    assert [job.id for job in queue.failed(start=5, count=3)] == newest[5:8]
    assert queue.failed(300) == queue.failed(0, 0) == queue.failed(2**53, 2**53) == []
    assert queue.failed(7)[0] == JobView(
        **{
            **{name: getattr(queue.failed(7, 1)[0], name) for name in JobView.__slots__},
            "payload": newest[7].upper(),
            "error": f"no {newest[7]}",
        }
    ), "each with its own payload and error"


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, InvalidArgument),
        (2**53 + 1, InvalidArgument),
        (10**400, InvalidArgument),
        ("1", TypeError),
        (1.0, TypeError),
        (True, TypeError),
        (None, TypeError),
    ],
)
def test_a_start_or_count_that_cannot_be_used_is_an_error(
    lab: Lab, value: Any, error: type[Exception]
) -> None:
    queue = lab.queue()

    with pytest.raises(error, match="start"):
        queue.failed(value)
    with pytest.raises(error, match="count"):
        queue.failed(0, value)


def test_large_payloads_are_listed_whole(lab: Lab) -> None:
    queue = lab.queue()
    payload = "x" * 1_048_576
    for id in "abcdef":  # more than the server sends in one piece
        queue.enqueue(id, payload)
        queue.reserve()
        queue.fail(id, 1)

    assert [(job.id, job.payload == payload) for job in queue.failed()] == [
        (id, True) for id in "fedcba"
    ]


def test_a_payload_that_cannot_be_decoded_is_told_in_its_record(lab: Lab) -> None:
    queue = lab.queue(codec=JSON)
    for id in "abc":
        queue.enqueue(id, [id])
    lab.raw.hset(lab.key(queue, "payloads"), "b", b"{no json")
    for outcome in queue.execute([operations.reserve()] * 3):
        job = outcome.job or outcome.error
        assert queue.fail(job.id, 1, error="e") is True

    newest, broken, oldest = queue.failed()

    assert (newest.payload, newest.undecodable) == (["c"], None)
    assert (oldest.payload, oldest.undecodable) == (["a"], None)
    assert (broken.id, broken.payload, broken.error) == ("b", None, "e")
    assert isinstance(broken.undecodable, DecodeError)
    assert broken.undecodable.in_flight is False
    assert broken.undecodable.data == b"{no json"
    assert "is in flight" not in str(broken.undecodable)
    assert queue.redrive("b") is True, "with another codec it may run"


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        ("broken", "broken"),
        ("", ""),
        (None, ""),
        ("x" * 5000, "x" * 4096),
        ("x" + "€" * 4096, "x" + "€" * 1365),
        ("bad \ud800 text", "bad \\ud800 text"),
        ("line\nnul \0", "line\nnul \0"),
    ],
)
def test_fail_keeps_the_error_up_to_4_kib_of_whole_characters(
    lab: Lab, error: str | None, kept: str
) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()

    assert queue.fail("a", 1, error=error) is True

    assert queue.failed()[0].error == kept


@pytest.mark.parametrize("ending", ["fail", "exhausted", "expired"])
def test_the_last_error_stays_where_the_end_brings_none(lab: Lab, ending: str) -> None:
    queue = lab.queue(lease=3600, max_attempts=2)
    queue.enqueue("a")
    queue.reserve()
    queue.retry("a", 1, error="the last one")
    queue.reserve()
    if ending == "fail":
        queue.fail("a", 2)
    elif ending == "exhausted":
        queue.retry("a", 2)
    else:
        key = lab.key(queue, "leases")
        lab.raw.zadd(key, dict.fromkeys(lab.raw.zrange(key, 0, -1), 1))
        queue.reap()

    assert queue.failed()[0].error == "the last one"


def test_an_error_of_the_wrong_type_is_a_type_error(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    before = lab.dump(queue)

    with pytest.raises(TypeError, match="error text is a str"):
        queue.fail("a", 1, error=ValueError("no"))

    assert lab.dump(queue) == before


# The id of a failed job


def test_a_failed_job_frees_its_room_and_keeps_its_id(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    fail(queue, "a")
    before = lab.dump(queue)

    outcome = queue.execute(operations.enqueue("a", "A"))
    assert outcome == Outcome(Reason.FAILED)
    assert queue.enqueue("a") is False
    assert lab.dump(queue) == before
    assert queue.enqueue("b") is True
    assert queue.enqueue("c") is False


@pytest.mark.parametrize("way", ["retry", "reap", "reserve", "a lower limit"])
def test_every_way_to_fail_frees_room(lab: Lab, way: str) -> None:
    queue = lab.queue(capacity=1, lease=3600, max_attempts=None if way == "a lower limit" else 1)
    queue.enqueue("a")
    queue.reserve()
    if way in ("reap", "reserve"):
        key = lab.key(queue, "leases")
        lab.raw.zadd(key, dict.fromkeys(lab.raw.zrange(key, 0, -1), 1))
    else:
        queue.retry("a", 1)
    assert queue.enqueue("b") is (way == "retry")

    if way == "a lower limit":
        queue.configure(max_attempts=1)
    if way != "retry":
        queue.reap() if way == "reap" else queue.reserve()
        assert queue.enqueue("b") is True
    assert listed(queue) == ["a"]
    assert queue.enqueue("c") is False


def test_after_a_purge_the_id_is_retired_still(lab: Lab) -> None:
    queue = lab.queue()
    fail(queue, "a")
    assert queue.purge_failed() == 1
    before = lab.dump(queue)

    assert queue.execute(operations.enqueue("a", "A")) == Outcome(Reason.PURGED)
    assert queue.redrive("a") is False
    assert lab.dump(queue) == before


@pytest.mark.parametrize("purged", [False, True])
def test_a_failed_job_cannot_be_cancelled(lab: Lab, purged: bool) -> None:
    queue = lab.queue()
    fail(queue, "a")
    if purged:
        queue.purge_failed()
    before = lab.dump(queue)

    assert queue.cancel("a") is False
    outcome = queue.execute(operations.cancel("a"))
    assert outcome == Outcome(Reason.PURGED if purged else Reason.FAILED)

    assert lab.dump(queue) == before


# Redrive


def test_a_redriven_job_waits_at_the_tail_and_goes_on(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    fail(queue, "a")
    queue.enqueue("b")

    assert queue.redrive("a") is True
    assert queue.redrive("a") is False

    assert queue.failed() == []
    assert not lab.dump(queue).keys() & {"failed", "failures", "retired", "cancelled"}
    assert queue.wait_for("a", 0) is Reason.WAITING
    assert [queue.reserve() for _ in range(3)] == [Job("b", "", 1), Job("a", "A", 2), None]
    assert lab.dump(queue)["errors"] == {b"a": b"no a"}, "the last error goes on"
    assert queue.ack("a", 1) is False
    assert queue.ack("a", 2) is True
    assert queue.wait_for("a", 0) is Reason.FINISHED
    assert reason(queue, "a") is Reason.FINISHED


@pytest.mark.parametrize("end", ["ack", "cancel"])
def test_what_ends_after_a_redrive_leaves_nothing_of_the_failure(lab: Lab, end: str) -> None:
    queue = lab.queue()
    fail(queue, "a")
    queue.redrive("a")
    queue.reserve()

    assert (queue.ack("a", 2) if end == "ack" else queue.cancel("a")) is True

    left = lab.dump(queue)
    assert left["retired"] == {b"a"}
    assert left.get("cancelled", set()) == (set() if end == "ack" else {b"a"})
    assert left.keys() - {"cancelled"} == {"meta", "retired", "receipts", "bell"}


@pytest.mark.parametrize("last", ["failed", "purged"])
def test_a_job_may_fail_again_after_a_redrive(lab: Lab, last: str) -> None:
    queue = lab.queue()
    fail(queue, "a", "b")
    queue.redrive("a")
    queue.reserve()
    queue.fail("a", 2, error="again")

    assert [(job.id, job.attempt, job.error) for job in queue.failed()] == [
        ("a", 2, "again"),
        ("b", 1, "no b"),
    ]
    if last == "purged":
        assert queue.purge_failed() == 2
    assert reason(queue, "a") == last


def test_a_redriven_job_has_a_fresh_budget(lab: Lab) -> None:
    queue = lab.queue(lease=3600, max_attempts=2)
    queue.enqueue("a")
    for attempt in (1, 2):
        queue.reserve()
        queue.retry("a", attempt)
    assert queue.redrive("a") is True

    for attempt in (3, 4):
        assert queue.reserve().attempt == attempt
        queue.retry("a", attempt)

    (job,) = queue.failed()
    assert (job.attempt, job.spent, job.deaths, job.limit) == (4, 2, 0, 2)


def test_deaths_are_counted_anew_after_a_redrive(lab: Lab) -> None:
    queue = lab.queue(lease=3600, max_attempts=1)
    queue.enqueue("a")
    key = lab.key(queue, "leases")
    for _ in range(2):
        queue.reserve()
        lab.raw.zadd(key, dict.fromkeys(lab.raw.zrange(key, 0, -1), 1))
        queue.reap()
        (job,) = queue.failed()
        assert (job.spent, job.deaths, job.reason) == (1, 1, FailureReason.EXPIRED)
        queue.redrive("a")


@pytest.mark.parametrize(
    ("own", "queue_", "given", "wanted"),
    [
        (2, 5, None, 2),  # its own is kept
        (2, 5, 3, 3),  # or replaced
        (None, 5, 1, 1),
        (None, 2, None, 2),  # the queue's is not its own: it may change
        (None, None, 2, 2),
    ],
)
def test_a_redriven_job_has_its_own_limit_or_the_one_given(
    lab: Lab, own: int | None, queue_: int | None, given: int | None, wanted: int
) -> None:
    queue = lab.queue(max_attempts=9)
    queue.enqueue("a", max_attempts=own)
    queue.reserve()
    queue.fail("a", 1)
    queue.configure(max_attempts=queue_)

    assert queue.redrive("a", max_attempts=given) is True

    runs = 0
    while job := queue.reserve():
        runs += 1
        assert runs <= wanted
        queue.retry("a", job.attempt)
    (failed,) = queue.failed()
    assert (runs, failed.limit, failed.spent) == (wanted, wanted, wanted)


def test_redrive_needs_room(lab: Lab) -> None:
    queue = lab.queue(capacity=2)
    fail(queue, "a")
    queue.execute([operations.enqueue(id) for id in "bc"])
    queue.reserve()
    before = lab.dump(queue)

    assert queue.redrive("a") is False
    outcome = queue.execute(operations.redrive("a"))
    assert outcome.reason is Reason.FULL
    occupancy = outcome.occupancy
    assert (occupancy.waiting, occupancy.in_flight, occupancy.capacity) == (1, 1, 2)
    assert lab.dump(queue) == before
    queue.ack("b", 1)
    assert queue.redrive("a") is True
    assert queue.enqueue("d") is False, "it takes the room"


def test_a_list_of_redrives_takes_the_room_there_is(lab: Lab) -> None:
    queue = lab.queue(capacity=3)
    fail(queue, *"abc")
    queue.enqueue("d")

    outcomes = queue.execute([operations.redrive(id) for id in "cab"])

    assert [outcome.reason for outcome in outcomes] == ["done", "done", "full"]
    assert outcomes[2].occupancy.waiting == 3
    assert waiting(queue) == [("d", 1), ("c", 2), ("a", 2)]
    assert listed(queue) == ["b"]


def test_twice_in_a_list_is_once(lab: Lab) -> None:
    queue = lab.queue()
    fail(queue, *"ab")

    outcomes = queue.execute([operations.redrive(id) for id in "aab"])

    assert [outcome.reason for outcome in outcomes] == ["done", "waiting", "done"]
    assert waiting(queue) == [("a", 2), ("b", 2)]


def test_redriven_by_many_at_once_a_job_comes_back_once(real: Backend) -> None:
    ids = [f"j{number}" for number in range(60)]
    first = Queue(redis=real.client())
    queues = [first, *(Queue(first.name, redis=real.client()) for _ in range(3))]
    fail(first, *ids)

    with ThreadPoolExecutor(4) as pool:
        works = [pool.submit(lambda q=q: sum(q.redrive(id) for id in ids)) for q in queues]
        counts = [work.result() for work in works]

    assert sum(counts) == len(ids)
    assert sorted(waiting(first)) == sorted((id, 2) for id in ids)
    first.destroy()
    for queue in queues:
        queue.close()


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("waiting", Reason.WAITING),
        ("released", Reason.WAITING),
        ("in flight", Reason.IN_FLIGHT),
        ("finished", Reason.FINISHED),
        ("cancelled", Reason.CANCELLED),
        ("purged", Reason.PURGED),
        ("unknown", Reason.UNKNOWN),
    ],
)
def test_a_job_that_has_not_failed_is_not_redriven(lab: Lab, state: str, wanted: Reason) -> None:
    queue = lab.queue()
    if state != "unknown":
        queue.enqueue("a")
    if state not in ("unknown", "waiting", "cancelled"):
        queue.reserve()
    match state:
        case "released":
            queue.release("a", 1)
        case "finished":
            queue.ack("a", 1)
        case "cancelled":
            queue.cancel("a")
        case "purged":
            queue.fail("a", 1)
            queue.purge_failed()
        case _:
            pass
    before = lab.dump(queue)

    assert queue.redrive("a") is False
    assert queue.redrive("a", max_attempts=3) is False
    assert queue.execute(operations.redrive("a")) == Outcome(wanted)

    assert lab.dump(queue) == before


@pytest.mark.parametrize("id", [1, b"a", None])
def test_an_id_of_the_wrong_type_is_a_type_error(lab: Lab, id: Any) -> None:
    queue = lab.queue()
    fail(queue, "a")

    with pytest.raises(TypeError, match="a job id is a str"):
        queue.redrive(id)

    assert listed(queue) == ["a"]


# Redrive all


def test_redrive_all_puts_the_oldest_first(lab: Lab) -> None:
    queue = lab.queue()
    ids = list("dbca")
    fail(queue, *ids)
    queue.enqueue("w")

    assert queue.redrive_all() == 4
    assert queue.redrive_all() == 0

    assert waiting(queue) == [("w", 1), *((id, 2) for id in ids)]
    assert queue.failed() == []


@pytest.mark.parametrize("number", [250, 251, 500])
def test_redrive_all_goes_on_past_one_step(lab: Lab, number: int) -> None:
    queue = lab.queue()
    ids = [f"j{number}" for number in range(number)]
    fail(queue, *ids)

    assert queue.redrive_all() == number

    taken = queue.execute([operations.reserve()] * (number + 1))
    assert [outcome.job.id for outcome in taken[:-1]] == ids
    assert taken[-1].job is None


def test_redrive_all_stops_when_the_queue_is_full(lab: Lab) -> None:
    queue = lab.queue(capacity=5)
    fail(queue, *"abcde")
    queue.execute([operations.enqueue(id) for id in "xy"])

    assert queue.redrive_all() == 3
    before = lab.dump(queue)
    assert queue.redrive_all() == 0
    assert lab.dump(queue) == before

    assert listed(queue) == ["e", "d"]
    assert waiting(queue) == [("x", 1), ("y", 1), ("a", 2), ("b", 2), ("c", 2)]


def test_redrive_all_gives_them_the_limit_that_it_is_given(lab: Lab) -> None:
    queue = lab.queue(max_attempts=3)
    fail(queue, *"ab")

    assert queue.redrive_all(max_attempts=1) == 2

    assert waiting(queue) == [("a", 2), ("b", 2)]
    assert all(outcome.failed for outcome in queue.execute([operations.retry("a", 2)]))
    assert queue.failed()[0].limit == 1


def test_redrive_all_ends_although_workers_fail_the_jobs_again_meanwhile(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job that had failed when it began goes back once, and none of the new failures."""
    queue = lab.queue("again")
    ids = [f"j{number}" for number in range(600)]
    fail(queue, *ids)
    worker = Queue("again", redis=lab.backend.client())
    step, steps = Definition.redriving, []

    def workers_first(self: Definition, *args: Any) -> Any:
        steps.append(args)
        assert len(steps) < 10, "it chases its own tail"
        taken = worker.execute([operations.reserve()] * 300)
        jobs = [outcome.job for outcome in taken if outcome.job]
        assert all(worker.execute([operations.fail(job.id, job.attempt) for job in jobs]))
        return step(self, *args)

    monkeypatch.setattr(Definition, "redriving", workers_first)

    assert queue.redrive_all() == 600

    assert len(steps) == 3
    failed = worker.failed(0, 1000)
    assert {job.attempt for job in failed} == {2}
    assert len(failed) == 500
    worker.close()


def test_redrive_all_goes_on_past_a_failure_that_a_clock_set_back_puts_first(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, ids = lab.queue(), [f"j{number}" for number in range(300)]
    fail(queue, *ids)
    queue.enqueue("new")
    step, steps = Definition.redriving, []

    def meanwhile(self: Definition, *args: Any) -> Any:
        steps.append(args)
        if len(steps) == 2:
            key = lab.key(queue, "failed")
            known = set(lab.raw.zrange(key, 0, -1))
            with Queue(queue.name, redis=lab.backend.client()) as worker:
                job = worker.reserve()
                assert job is not None
                assert job.id == "new"
                worker.fail(job.id, job.attempt)
            lab.raw.zadd(key, dict.fromkeys(set(lab.raw.zrange(key, 0, -1)) - known, 1))
        return step(self, *args)

    monkeypatch.setattr(Definition, "redriving", meanwhile)

    assert queue.redrive_all() == 300

    assert [job.id for job in queue.failed()] == ["new"]


# Purge


def test_purge_drops_the_records_and_nothing_else(lab: Lab) -> None:
    queue = lab.queue()
    fail(queue, *"abc")
    queue.enqueue("d", "D")
    queue.reserve()
    queue.retry("d", 1, error="no d")

    assert queue.purge_failed() == 3
    assert queue.purge_failed() == 0

    left = lab.dump(queue)
    assert "failed" not in left
    assert "failures" not in left
    assert left["payloads"] == {b"d": b"D"}
    assert left["errors"] == {b"d": b"no d"}
    assert left["retired"] == {b"a", b"b", b"c"}
    assert {reason(queue, id) for id in "abc"} == {Reason.PURGED}
    assert queue.reserve() == Job("d", "D", 2)


def test_purge_takes_those_that_are_older_than_asked(lab: Lab) -> None:
    queue = lab.queue()
    fail(queue, *"abcd")
    shift(lab, queue, 300, "c")
    shift(lab, queue, 200, "a")
    shift(lab, queue, 100, "d")
    assert listed(queue) == ["b", "d", "a", "c"]

    assert queue.purge_failed(older_than=400) == 0
    assert queue.purge_failed(older_than=timedelta(seconds=250)) == 1
    assert listed(queue) == ["b", "d", "a"]
    assert queue.purge_failed(older_than=99.5) == 2
    assert listed(queue) == ["b"]
    assert queue.purge_failed(older_than=365 * 24 * 3600) == 0
    assert queue.purge_failed() == 1
    assert listed(queue) == []


def test_purge_goes_on_past_one_step(lab: Lab) -> None:
    queue = lab.queue()
    ids = [f"j{number}" for number in range(510)]
    fail(queue, *ids)
    shift(lab, queue, 100, *ids[:505])

    assert queue.purge_failed(older_than=50) == 505

    assert listed(queue) == ids[:504:-1]
    left = lab.dump(queue)
    assert {len(left[part]) for part in KEPT} == {5}
    assert len(left["retired"]) == 510


def test_a_purged_job_has_no_way_back(lab: Lab) -> None:
    queue = lab.queue()
    fail(queue, *"ab")
    shift(lab, queue, 100, "a")
    queue.purge_failed(older_than=50)

    assert queue.redrive("a") is False
    assert queue.redrive_all() == 1

    assert waiting(queue) == [("b", 2)]
    assert queue.wait_for("a", 0) is Reason.PURGED


@pytest.mark.parametrize(
    ("age", "error"),
    [
        (-1, InvalidArgument),
        (-0.001, InvalidArgument),
        (math.nan, InvalidArgument),
        (math.inf, InvalidArgument),
        (365 * 24 * 3600 + 1, InvalidArgument),
        (timedelta(seconds=-1), InvalidArgument),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
    ],
)
def test_an_age_that_cannot_be_used_purges_nothing(
    lab: Lab, age: Any, error: type[Exception]
) -> None:
    queue = lab.queue()
    fail(queue, "a")
    before = lab.dump(queue)

    with pytest.raises(error, match="older_than"):
        queue.purge_failed(older_than=age)

    assert lab.dump(queue) == before


# Bounds on what is kept


@pytest.mark.parametrize("keep", [0, 1, 3])
@pytest.mark.parametrize("wrapped", [False, True], ids=["number", "Keep"])
def test_only_so_many_of_the_newest_records_are_kept(lab: Lab, keep: int, wrapped: bool) -> None:
    queue = lab.queue(keep_failed=Keep(count=keep) if wrapped else keep)
    ids = list("abcde")
    for id in ids:
        fail(queue, id)
        assert len(listed(queue)) <= keep

    assert listed(queue) == ids[::-1][:keep]
    left = lab.dump(queue)
    assert {len(left.get(part, ())) for part in KEPT} == {keep}
    assert left["retired"] == {id.encode() for id in ids}
    assert [reason(queue, id) for id in ids] == ["purged"] * (5 - keep) + ["failed"] * keep
    assert queue.settings().keep_failed == Keep(count=keep)


def test_a_batch_of_failures_keeps_the_newest_too(lab: Lab) -> None:
    queue = lab.queue(keep_failed=2)

    fail(queue, *"abcde")

    assert listed(queue) == ["e", "d"]


def test_a_batch_of_failures_of_any_size_leaves_no_more_than_are_kept(lab: Lab) -> None:
    queue = lab.queue(keep_failed=1)

    fail(queue, *(f"j{number}" for number in range(300)))

    assert listed(queue) == ["j299"]


@pytest.mark.parametrize("trigger", ["fail", "retry", "reserve", "reap"])
def test_records_beyond_their_age_go_with_the_next_step(lab: Lab, trigger: str) -> None:
    queue = lab.queue(keep_failed=Keep(age=timedelta(minutes=1)))
    fail(queue, *"abc")
    queue.enqueue("d", max_attempts=1)
    if trigger in ("fail", "retry"):
        queue.reserve()
    shift(lab, queue, 61, "a", "c")
    assert listed(queue) == ["b", "c", "a"]

    if trigger in ("fail", "retry"):
        getattr(queue, trigger)("d", 1, error="no d")
    else:
        getattr(queue, trigger)()

    assert listed(queue) == (["d", "b"] if trigger in ("fail", "retry") else ["b"])
    left = lab.dump(queue)
    assert left["errors"].keys() == {id.encode() for id in listed(queue)}
    assert left["failures"].keys() == left["errors"].keys()
    assert left["payloads"].keys() == {b"b", b"d"}
    assert [reason(queue, id) for id in "abc"] == ["purged", "failed", "purged"]


def test_both_bounds_hold(lab: Lab) -> None:
    queue = lab.queue(keep_failed=Keep(count=3, age=60))
    fail(queue, *"abc")
    queue.enqueue("d")
    queue.reserve()
    shift(lab, queue, 61, "a", "b")

    queue.fail("d", 1)
    assert listed(queue) == ["d", "c"], "two were too old, where only one was too many"
    fail(queue, "e", "f")
    assert listed(queue) == ["f", "e", "d"]


def test_the_oldest_go_a_bounded_number_at_a_time(lab: Lab) -> None:
    queue = lab.queue(keep_failed=Keep(age=60))
    ids = [f"j{number}" for number in range(150)]
    fail(queue, *ids)
    shift(lab, queue, 61)

    left = []
    for _ in range(3):
        queue.reap()
        left.append(listed(queue))

    assert left == [ids[:63:-1], ids[:127:-1], []]


@pytest.mark.parametrize("trigger", ["fail", "reserve", "reap"])
def test_a_bound_that_is_configured_later_holds_for_what_is_there(lab: Lab, trigger: str) -> None:
    queue = lab.queue()
    fail(queue, *"abcd")
    queue.enqueue("e")
    queue.reserve()
    queue.enqueue("f")

    queue.configure(keep_failed=2)
    if trigger == "fail":
        queue.fail("e", 1)
    else:
        getattr(queue, trigger)()

    assert listed(queue) == (["e", "d"] if trigger == "fail" else ["d", "c"])


def test_without_a_bound_all_are_kept(lab: Lab) -> None:
    queue = lab.queue(keep_failed=None)
    assert queue.settings() == Settings(capacity=None, codec="text", keep_failed=Keep())
    fail(queue, *"abc")
    shift(lab, queue, 300 * 24 * 3600)

    queue.reap()
    queue.reserve()

    assert listed(queue) == ["c", "b", "a"]


def test_the_bounds_are_settings_that_others_must_agree_with(lab: Lab) -> None:
    queue = lab.queue("kept", keep_failed=Keep(count=5, age=60))

    assert lab.queue("kept").settings().keep_failed == Keep(5, 60)
    with pytest.raises(SettingsMismatch, match=r"keep_failed's count 5, not 4"):
        lab.queue("kept", keep_failed=Keep(4, 60))
    with pytest.raises(SettingsMismatch, match=r"keep_failed's age 60 seconds, not None"):
        lab.queue("kept", keep_failed=5)
    queue.configure(keep_failed=7)
    assert lab.queue("kept", keep_failed=7).settings().keep_failed == Keep(count=7)


@pytest.mark.parametrize(
    ("keep", "error"),
    [
        (-1, InvalidArgument),
        (2**53 + 1, InvalidArgument),
        (Keep(count=-1), InvalidArgument),
        (Keep(age=-1), InvalidArgument),
        (Keep(age=math.nan), InvalidArgument),
        (Keep(age=math.inf), InvalidArgument),
        (Keep(age=366 * 24 * 3600), InvalidArgument),
        (True, TypeError),
        (1.0, TypeError),
        ("1", TypeError),
        (timedelta(days=1), TypeError),
        (Keep(count=True), TypeError),
        (Keep(count=1.0), TypeError),
        (Keep(age="1"), TypeError),
        (Keep(age=True), TypeError),
    ],
    ids=repr,
)
def test_a_bound_that_cannot_be_used_is_an_error_and_changes_nothing(
    lab: Lab, keep: Any, error: type[Exception]
) -> None:
    queue = lab.queue("strict")
    fail(queue, "a")
    before = lab.dump(queue)
    doors: list[Callable[[], Any]] = [
        lambda: lab.queue("strict", keep_failed=keep),
        lambda: queue.configure(keep_failed=keep),
    ]

    for door in doors:
        with pytest.raises(error, match="keep_failed"):
            door()

    assert lab.dump(queue) == before


# All together


def test_however_often_jobs_fail_and_come_back_nothing_is_left_over(lab: Lab) -> None:
    queue = lab.queue(capacity=4, max_attempts=1, keep_failed=2)
    for round_ in range(6):
        for id in "abcd":
            assert queue.enqueue(f"{id}{round_}", "x") is True
        for job in [queue.reserve() for _ in range(4)]:
            queue.retry(job.id, job.attempt, error="e")
        assert queue.redrive_all() == 2
        for job, end in zip([queue.reserve() for _ in range(2)], ("ack", "fail"), strict=True):
            assert getattr(queue, end)(job.id, 2) is True
    assert queue.purge_failed() == 1

    left = lab.dump(queue)
    assert left.keys() - {"room", "promised"} == {
        "meta",
        "retired",
        "cancelled",
        "receipts",
        "bell",
    }
    assert left["retired"] == {f"{i}{r}".encode() for i, r in itertools.product("abcd", range(6))}
    finished = {f"c{round_}".encode() for round_ in range(6)}
    assert left["cancelled"] == {b"!" + id for id in left["retired"] - finished}
