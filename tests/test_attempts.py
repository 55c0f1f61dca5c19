"""Attempts and their limit: counted at every reservation, the first one included."""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support import Lab

from durableq import (
    Failure,
    FailureReason,
    InvalidArgument,
    Job,
    Outcome,
    Reason,
    SettingsMismatch,
    operations,
)

SOURCES = pytest.mark.parametrize("source", ["job", "queue", "worker"])
LIMITS = pytest.mark.parametrize("limit", [1, 2, 3])


def expire(lab: Lab, queue: Any, *ids: str) -> None:
    """Let the leases of these jobs (of none: of all) have ended."""
    key = lab.key(queue, "leases")
    members = [m for m in lab.raw.zrange(key, 0, -1) if not ids or m[13:].decode() in ids]
    assert all(lab.raw.zscore(key, member) < math.inf for member in members)
    lab.raw.zadd(key, dict.fromkeys(members, 1), xx=True)


def drain(queue: Any) -> list[str]:
    """Reap all that is due; return the ids of those that wait again."""
    returned: list[str] = []
    more = True
    while more:
        outcome = queue.reap()
        returned += outcome.returned
        more = outcome.more
    return returned


def shown(queue: Any) -> list[tuple[str, int, int, int, int | None, str]]:
    """What the records of failed jobs count, the newest first."""
    jobs = queue.failed(0, 1000)
    return [(job.id, job.attempt, job.spent, job.deaths, job.limit, job.reason) for job in jobs]


# Where the limit comes from


@SOURCES
@LIMITS
@pytest.mark.parametrize("ending", ["retry", "expiry"])
def test_a_job_runs_exactly_as_often_as_its_limit_allows(
    lab: Lab, source: str, limit: int, ending: str
) -> None:
    queue = lab.queue(lease=3600, max_attempts=limit if source == "queue" else None)
    queue.enqueue("a", "A", max_attempts=limit if source == "job" else None)
    words = {"max_attempts": limit} if source == "worker" else {}

    runs = []
    while job := queue.reserve(**words):
        runs.append(job.attempt)
        assert len(runs) <= limit
        if ending == "retry":
            assert queue.retry("a", job.attempt) is True
        else:
            expire(lab, queue)

    assert runs == list(range(1, limit + 1)), "the first run counts, too"
    deaths, reason = (0, "exhausted") if ending == "retry" else (limit, "expired")
    assert shown(queue) == [("a", limit, limit, deaths, limit, reason)]
    assert queue.wait_for("a", 0) is Reason.FAILED


def test_without_a_limit_a_job_comes_back_for_ever(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    queue.enqueue("a")

    for attempt in range(1, 41):
        assert queue.reserve() == Job("a", "", attempt)
        if attempt % 2:
            assert queue.retry("a", attempt) is True
        else:
            expire(lab, queue)

    assert queue.failed() == []


@pytest.mark.parametrize(
    ("job", "queue_", "worker"), [p for p in itertools.product([None, 1, 2, 3], repeat=3) if any(p)]
)
def test_the_limit_is_the_jobs_own_or_the_queues_or_the_workers(
    lab: Lab, job: int | None, queue_: int | None, worker: int | None
) -> None:
    queue = lab.queue(max_attempts=queue_)
    queue.enqueue("a", max_attempts=job)
    wanted = job or queue_ or worker

    runs = 0
    while reserved := queue.reserve(max_attempts=worker):
        runs += 1
        assert runs <= wanted
        queue.retry("a", reserved.attempt)

    assert shown(queue) == [("a", wanted, wanted, 0, wanted, "exhausted")]


def test_the_limit_is_a_setting_that_others_adopt_and_must_agree_with(lab: Lab) -> None:
    queue = lab.queue("limited", max_attempts=3)

    assert lab.queue("limited").settings().max_attempts == 3
    with pytest.raises(SettingsMismatch, match=r"max_attempts 3, not 2"):
        lab.queue("limited", max_attempts=2)
    with pytest.raises(SettingsMismatch, match=r"max_attempts 3, not None"):
        lab.queue("limited", max_attempts=None)
    queue.configure(max_attempts=None)
    with pytest.raises(SettingsMismatch, match=r"max_attempts None, not 3"):
        lab.queue("limited", max_attempts=3)


# All ways in which an attempt can end

ENDINGS = {"r": "retry", "x": "expiry", "l": "release", "f": "fail"}


def fate(limit: int, endings: str) -> tuple[int, tuple[str, int, int, int, int, str] | None]:
    """How often a job with these endings runs, and its record, should it have failed by then."""
    spent = deaths = 0
    for runs, ending in enumerate(endings, 1):
        spent += ending != "l"
        deaths += ending == "x"
        reason = "rejected" if ending == "f" else "expired" if ending == "x" else "exhausted"
        if ending == "f" or (ending != "l" and spent == limit):
            return runs, (f"{limit}-{endings}", runs, spent, deaths, limit, reason)
    return len(endings), None


def test_runs_never_exceed_the_limit_whatever_ends_them(lab: Lab) -> None:
    """Every mix of up to four endings is one job, and all of them go on in step."""
    queue = lab.queue(lease=3600)
    length = 4
    mixes = ["".join(mix) for mix in itertools.product(ENDINGS, repeat=length)]
    jobs = {f"{limit}-{mix}": (limit, mix) for limit in (1, 2, 3) for mix in mixes}
    queue.execute([operations.enqueue(id, max_attempts=jobs[id][0]) for id in jobs])

    runs: Counter[str] = Counter()
    for step in range(length):
        now: dict[str, list[Job[str]]] = {ending: [] for ending in ENDINGS}
        for outcome in queue.execute([operations.reserve()] * len(jobs)):
            if outcome.job:
                runs[outcome.job.id] += 1
                assert outcome.job.attempt == step + 1
                now[jobs[outcome.job.id][1][step]].append(outcome.job)
        for ending, verb in ENDINGS.items():
            if ending != "x":
                make = getattr(operations, verb)
                assert all(queue.execute([make(job.id, job.attempt) for job in now[ending]]))
        expire(lab, queue, *(job.id for job in now["x"]))
        drain(queue)

    wanted = {id: fate(limit, mix) for id, (limit, mix) in jobs.items()}
    assert runs == {id: number for id, (number, _) in wanted.items()}
    assert sorted(shown(queue)) == sorted(failed for _, failed in wanted.values() if failed)
    for id, (limit, mix) in jobs.items():
        assert sum(ending != "l" for ending in mix[: runs[id]]) <= limit
    assert lab.raw.hlen(lab.key(queue, "jobs")) == sum(not failed for _, failed in wanted.values())


# The limit that counts is that of the reservation


@pytest.mark.parametrize("reaper", ["reap", "reserve", "a reserve with a limit of its own"])
def test_whoever_reaps_goes_by_the_limit_of_the_reservation(lab: Lab, reaper: str) -> None:
    queue = lab.queue("stamped", lease=3600)
    queue.enqueue("a")
    queue.reserve(max_attempts=1)
    expire(lab, queue)
    other = lab.queue("stamped")

    if reaper == "reap":
        outcome = other.reap()
        assert outcome.reason is Reason.DONE
    else:
        words = {} if reaper == "reserve" else {"max_attempts": 9}
        outcome = other.execute(operations.reserve(**words))
        assert outcome.reason is Reason.EMPTY

    assert outcome.failed == (Failure("a", 1, FailureReason.EXPIRED),)
    assert outcome.returned == ()
    assert shown(other) == [("a", 1, 1, 1, 1, "expired")]


def test_a_higher_limit_of_the_next_reservation_replaces_the_one_before(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve(max_attempts=2)
    queue.retry("a", 1)
    queue.reserve(max_attempts=4)
    queue.retry("a", 2)
    queue.reserve()  # by one who sets no limit

    assert queue.execute(operations.retry("a", 3)) == Outcome(Reason.DONE)
    assert queue.reserve() == Job("a", "", 4)


def test_a_limit_configured_meanwhile_is_not_that_of_what_is_in_flight(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    queue.execute([operations.enqueue(id) for id in "ab"])
    queue.execute([operations.reserve()] * 2)

    queue.configure(max_attempts=1)

    expire(lab, queue, "a")
    assert queue.reap().returned == ("a",)
    assert queue.execute(operations.retry("b", 1)) == Outcome(Reason.DONE)
    outcome = queue.execute(operations.reserve())
    assert outcome.reason is Reason.EMPTY
    assert outcome.failed == (
        Failure("a", 1, FailureReason.EXHAUSTED),
        Failure("b", 1, FailureReason.EXHAUSTED),
    )


# A lower limit comes into force


@pytest.mark.parametrize("given", ["queue", "worker"])
def test_a_waiting_job_beyond_the_limit_in_force_fails_and_the_next_is_handed_out(
    lab: Lab, given: str
) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    for attempt in (1, 2):
        queue.reserve()
        queue.retry("a", attempt)
    queue.enqueue("b", "B")
    words = {"max_attempts": 2}
    if given == "queue":
        queue.configure(max_attempts=2)
        words = {}

    outcome = queue.execute(operations.reserve(**words))

    assert outcome.job == Job("b", "B", 1)
    assert outcome.failed == (Failure("a", 2, FailureReason.EXHAUSTED),)
    assert shown(queue) == [("a", 2, 2, 0, 2, "exhausted")]
    assert queue.execute(operations.reserve(**words)) == Outcome(Reason.EMPTY)


def test_a_released_job_beyond_the_limit_in_force_fails_too(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    queue.retry("a", 1)
    queue.reserve()
    queue.release("a", 2)
    queue.enqueue("b")
    queue.configure(max_attempts=1)

    outcome = queue.execute(operations.reserve())

    assert outcome.job == Job("b", "", 1)
    assert outcome.failed == (Failure("a", 2, FailureReason.EXHAUSTED),)
    assert "ranked" not in lab.dump(queue)


def test_a_job_with_a_limit_of_its_own_goes_by_that_alone(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a", max_attempts=3)
    queue.reserve()
    queue.retry("a", 1)

    queue.configure(max_attempts=1)

    assert queue.reserve(max_attempts=1) == Job("a", "", 2)
    assert queue.execute(operations.retry("a", 2)) == Outcome(Reason.DONE)
    assert queue.reserve() == Job("a", "", 3)
    assert queue.execute(operations.retry("a", 3)).failed


def test_a_reserve_passes_at_most_64_of_them_and_goes_on_by_itself(lab: Lab) -> None:
    queue = lab.queue()
    ids = [f"j{number}" for number in range(150)]
    queue.execute([operations.enqueue(id) for id in ids])
    queue.execute([operations.reserve()] * len(ids))
    queue.execute([operations.retry(id, 1) for id in ids])
    queue.enqueue("good")
    queue.configure(max_attempts=1)

    outcome = queue.execute(operations.reserve())
    assert (outcome.reason, len(outcome.failed), outcome.more) == (Reason.EMPTY, 64, True)
    assert queue.reserve() == Job("good", "", 1)

    wanted = [(id, 1, 1, 0, 1, "exhausted") for id in ids]
    assert shown(queue)[::-1] == wanted, "in their order, the newest first"
    assert queue.reserve() is None


# What is told of a failure


def test_every_operation_that_makes_a_job_fail_names_it_in_its_outcome(lab: Lab) -> None:
    queue = lab.queue(lease=3600, max_attempts=1)
    queue.execute([operations.enqueue(id) for id in "abcde"])
    queue.execute([operations.reserve()] * 4)

    retried = queue.execute(operations.retry("a", 1))
    rejected = queue.execute(operations.fail("b", 1))
    expire(lab, queue, "c")
    reaped = queue.reap()
    expire(lab, queue, "d")
    passing = queue.execute(operations.reserve())

    assert retried == Outcome(Reason.DONE, failed=(Failure("a", 1, FailureReason.EXHAUSTED),))
    assert rejected == Outcome(Reason.DONE, failed=(Failure("b", 1, FailureReason.REJECTED),))
    assert reaped.failed == (Failure("c", 1, FailureReason.EXPIRED),)
    assert (passing.job, passing.failed) == (
        Job("e", "", 1),
        (Failure("d", 1, FailureReason.EXPIRED),),
    )
    assert [(job.id, job.reason) for job in queue.failed()] == [
        ("d", FailureReason.EXPIRED),
        ("c", FailureReason.EXPIRED),
        ("b", FailureReason.REJECTED),
        ("a", FailureReason.EXHAUSTED),
    ]


def test_what_did_not_fail_is_in_no_outcome(lab: Lab) -> None:
    queue = lab.queue(lease=3600, max_attempts=2)
    queue.enqueue("a")
    assert queue.execute(operations.reserve()).failed == ()
    assert queue.execute(operations.retry("a", 1)) == Outcome(Reason.DONE)
    queue.reserve()
    assert queue.execute(operations.fail("a", 1)).failed == (), "it was refused"


def test_in_a_list_each_outcome_tells_its_own_failure(lab: Lab) -> None:
    queue = lab.queue()
    for id, limit in (("a", 1), ("b", 2), ("c", 1)):
        queue.enqueue(id, max_attempts=limit)
    queue.execute([operations.reserve()] * 3)

    outcomes = queue.execute([operations.retry(id, 1) for id in "abca"])

    failed = [outcome.failed for outcome in outcomes]
    assert failed == [
        (Failure("a", 1, FailureReason.EXHAUSTED),),
        (),
        (Failure("c", 1, FailureReason.EXHAUSTED),),
        (),
    ]
    assert outcomes[3].reason is Reason.FAILED


def test_fail_ends_a_job_with_attempts_left(lab: Lab) -> None:
    queue = lab.queue(max_attempts=3)
    queue.enqueue("a")
    queue.reserve()

    assert queue.fail("a", 1) is True
    assert queue.fail("a", 1) is False

    assert shown(queue) == [("a", 1, 1, 0, 3, "rejected")]
    assert queue.reserve() is None


def test_deaths_and_attempts_that_count_are_told_apart(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    queue.enqueue("a")
    for attempt, ending in enumerate("lxrlx", 1):
        queue.reserve()
        if ending == "x":
            expire(lab, queue)
            queue.reap()
        else:
            assert getattr(queue, ENDINGS[ending])("a", attempt) is True
    queue.reserve()

    queue.fail("a", 6)

    assert shown(queue) == [("a", 6, 4, 2, None, "rejected")]


def test_a_poison_job_fails_after_its_last_death_and_the_good_ones_beside_it_finish(
    lab: Lab,
) -> None:
    queue = lab.queue(lease=3600, max_attempts=3)
    good = [f"good{number}" for number in range(30)]
    queue.execute([operations.enqueue(id) for id in (*good[:5], "poison", *good[5:])])

    deaths, done = 0, []
    while job := queue.reserve(worker=f"w{deaths}"):
        if job.id == "poison":
            deaths += 1
            assert deaths <= 3
            expire(lab, queue, "poison")  # as its worker died
        else:
            assert queue.ack(job.id, job.attempt) is True
            done.append(job.id)

    assert sorted(done) == sorted(good)
    assert shown(queue) == [("poison", 3, 3, 3, 3, "expired")]
    assert queue.failed()[0].worker == "w2", "the last one that it took along"
    assert queue.join(0) is True


# Input


def doors(lab: Lab, queue: Any) -> list[Callable[[Any], Any]]:
    """All ways to give a limit."""
    return [
        lambda limit: lab.queue(queue.name, max_attempts=limit),
        lambda limit: queue.configure(max_attempts=limit),
        lambda limit: queue.enqueue("new", max_attempts=limit),
        lambda limit: queue.execute(operations.enqueue("new", max_attempts=limit)),
        lambda limit: queue.reserve(max_attempts=limit),
        lambda limit: queue.execute(operations.reserve(max_attempts=limit)),
        lambda limit: queue.redrive("failed", max_attempts=limit),
        lambda limit: queue.execute(operations.redrive("failed", max_attempts=limit)),
        lambda limit: queue.redrive_all(max_attempts=limit),
    ]


@pytest.mark.parametrize(
    ("unusable", "error"),
    [
        ([0, -1, -(10**400), 2**31, 10**400], InvalidArgument),
        ([True, False, 1.0, "1", "", b"1", [1], math.nan], TypeError),
    ],
)
def test_a_limit_that_cannot_be_used_is_one_error_and_changes_nothing(
    lab: Lab, unusable: list[Any], error: type[Exception]
) -> None:
    queue = lab.queue("strict", max_attempts=2)
    queue.execute([operations.enqueue(id) for id in ("failed", "waiting")])
    queue.reserve()
    queue.fail("failed", 1)
    before = lab.dump(queue)

    for value in unusable:
        for give in doors(lab, queue):
            with pytest.raises(error, match="max_attempts"):
                give(value)

    assert lab.dump(queue) == before


def test_the_largest_limit_is_kept(lab: Lab) -> None:
    queue = lab.queue(max_attempts=2**31 - 1)
    queue.enqueue("a")
    queue.reserve()
    queue.fail("a", 1)

    assert queue.failed()[0].limit == queue.settings().max_attempts == 2**31 - 1
