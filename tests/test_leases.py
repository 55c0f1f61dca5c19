"""Leases: a reservation ends by the server's clock, and is over when somebody reaps it.

No test waits: the stored ends are moved into the past, as if the time had gone by.
"""

import itertools
import math
import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis
from support import Backend, Lab, Record

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

VERBS = ["ack", "retry", "extend", "fail", "release"]
YEAR = 365 * 24 * 3600
HELD = pytest.mark.parametrize("verb", VERBS)


def shift(lab: Lab, queue: Any, seconds: float) -> None:
    """Move the ends of all leases that end at all, as if so many seconds had gone by."""
    key = lab.key(queue, "leases")
    leases = dict(lab.raw.zrange(key, 0, -1, withscores=True))
    moved = {member: end - seconds * 1000 for member, end in leases.items() if end < math.inf}
    if moved:
        lab.raw.zadd(key, moved, xx=True)


def ends(lab: Lab, queue: Any) -> dict[str, float]:
    """The end of each lease by id, in ms of the server's clock."""
    leases = lab.raw.zrange(lab.key(queue, "leases"), 0, -1, withscores=True)
    return {member[13:].decode(): end for member, end in leases}


def set_ends(lab: Lab, queue: Any, **wanted: float) -> None:
    key = lab.key(queue, "leases")
    for member in lab.raw.zrange(key, 0, -1):
        if member[13:].decode() in wanted:
            lab.raw.zadd(key, {member: wanted[member[13:].decode()]})


def clock(raw: redis.Redis) -> int:
    seconds, micro = raw.time()
    return seconds * 1000 + micro // 1000


def lasts(lab: Lab, queue: Any, id: str, seconds: float, act: Callable[[], Any]) -> bool:
    """Tell whether `act` gives a job a lease that ends so many seconds from then."""
    before = clock(lab.raw)
    act()
    after = clock(lab.raw)
    return before + seconds * 1000 <= ends(lab, queue)[id] <= after + seconds * 1000


def record(lab: Lab, queue: Any, id: str) -> bytes:
    return lab.raw.hget(lab.key(queue, "jobs"), id)


def reserved(lab: Lab, *ids: str, **settings: Any) -> Any:
    """Make a queue whose jobs are all in flight with a lease."""
    queue = lab.queue(**{"lease": 60, **settings})
    queue.execute([operations.enqueue(id, id.upper()) for id in ids])
    assert all(queue.execute([operations.reserve()] * len(ids)))
    return queue


# What the end of a lease does


def test_an_expired_job_goes_to_the_waiting_tail_with_its_next_attempt(lab: Lab) -> None:
    queue = reserved(lab, "a")
    queue.enqueue("b")

    assert queue.reap().reason is Reason.EMPTY, "not before its end"
    shift(lab, queue, 61)
    assert queue.reap().returned == ("a",)

    assert queue.reserve() == Job("b", "", 1)
    assert queue.reserve() == Job("a", "A", 2)


def test_reserve_recovers_by_itself_and_hands_out_what_waited_before(lab: Lab) -> None:
    queue = reserved(lab, "a")
    queue.enqueue("b", "B")
    shift(lab, queue, 61)

    assert [queue.reserve() for _ in range(3)] == [Job("b", "B", 1), Job("a", "A", 2), None]


def test_a_lease_that_runs_protects_its_job(lab: Lab) -> None:
    queue = reserved(lab, "a")
    shift(lab, queue, 50)
    before = lab.dump(queue)

    assert queue.reserve() is None
    assert queue.reap().reason is Reason.EMPTY

    assert lab.dump(queue) == before
    assert queue.ack("a", 1) is True


@HELD
@pytest.mark.parametrize("claimed", [False, True], ids=["attempt", "token"])
def test_the_old_holder_is_refused_once_the_job_was_reaped(
    lab: Lab, verb: str, claimed: bool
) -> None:
    queue = lab.queue(lease=60)
    queue.enqueue("a")
    old = queue.reserve()
    shift(lab, queue, 61)
    words = {"token": old.token} if claimed else {}

    assert queue.reap().returned == ("a",)
    before = lab.dump(queue)
    assert getattr(queue, verb)("a", 1, **words) is False
    assert queue.execute(getattr(operations, verb)("a", 1, **words)).reason is Reason.WAITING
    assert lab.dump(queue) == before

    new = queue.reserve()
    assert (new.attempt, new.token != old.token) == (2, True)
    before = lab.dump(queue)
    assert getattr(queue, verb)("a", 1, **words) is False
    outcome = queue.execute(getattr(operations, verb)("a", 1, **words))
    assert (outcome.reason, outcome.attempt) == (Reason.STALE, 2)
    if claimed:
        assert getattr(queue, verb)("a", 2, **words) is False, "the token of the attempt before"
    assert lab.dump(queue) == before
    assert queue.ack("a", 2, token=new.token) is True


@HELD
def test_what_the_holder_says_after_the_end_and_before_a_reap_counts(lab: Lab, verb: str) -> None:
    queue = reserved(lab, "a")
    shift(lab, queue, 3600)

    assert getattr(queue, verb)("a", 1) is True

    assert queue.reap().returned == ()
    failed = queue.failed()
    seen = {
        "ack": Reason.FINISHED,
        "retry": Reason.WAITING,
        "extend": Reason.IN_FLIGHT,
        "fail": Reason.FAILED,
        "release": Reason.WAITING,
    }
    assert queue.wait_for("a", 0) is seen[verb]
    assert [(job.reason, job.deaths) for job in failed] == (
        [(FailureReason.REJECTED, 0)] if verb == "fail" else []
    ), "nobody died"


@pytest.mark.parametrize("verb", ["extend", "fail"])
def test_only_the_exact_attempt_and_token_hold_the_job(lab: Lab, verb: str) -> None:
    queue = lab.queue(lease=60)
    queue.enqueue("a")
    token = queue.reserve().token
    before = lab.dump(queue)

    for attempt in (0, -1, 2, 2**53 + 1, 10**5000):
        assert getattr(queue, verb)("a", attempt) is False
        outcome = queue.execute(getattr(operations, verb)("a", attempt, token=token))
        assert (outcome.reason, outcome.attempt) == (Reason.STALE, 1)
    for other in ("", "other", "x" * 10_000, "\ud800", token + "0"):
        assert getattr(queue, verb)("a", 1, token=other) is False
        outcome = queue.execute(getattr(operations, verb)("a", 1, token=other))
        assert (outcome.reason, outcome.attempt) == (Reason.STALE, 1)
    for wrong in ("1", 1.0, True, None, b"1", [1]):
        with pytest.raises(TypeError, match="attempt is an int"):
            getattr(queue, verb)("a", wrong)

    assert lab.dump(queue) == before
    assert getattr(queue, verb)("a", 1, token=token) is True


@pytest.mark.parametrize("left", [0, 1])
def test_a_lease_is_over_in_the_very_millisecond_of_its_end(real: Backend, left: int) -> None:
    lab = Lab(real, asynchronous=False)
    queue = lab.queue(lease=60)
    queue.enqueue("a")
    attempt = queue.reserve().attempt
    (member,) = lab.raw.zrange(lab.key(queue, "leases"), 0, -1)
    seen, give_up = 0, time.monotonic() + 60
    while seen < 2:
        assert time.monotonic() < give_up, "no reap fell into one millisecond"
        moment = clock(lab.raw)
        lab.raw.zadd(lab.key(queue, "leases"), {member: moment + left})
        returned = queue.reap().returned
        exact = clock(lab.raw) == moment  # else we cannot know when it was reaped
        if left == 0:
            assert returned == ("a",), "its end is now or has gone by"
        elif exact:
            assert returned == (), "it has a millisecond left"
        seen += exact
        if returned:
            attempt += 1
            assert queue.reserve().attempt == attempt
            (member,) = lab.raw.zrange(lab.key(queue, "leases"), 0, -1)
    lab.end()


def test_an_end_that_is_the_clocks_present_is_over(lab: Lab) -> None:
    queue = reserved(lab, "a")

    set_ends(lab, queue, a=clock(lab.raw))

    assert queue.reap().returned == ("a",)


# Whose lease it is


def test_a_queue_without_a_lease_never_gives_a_job_to_others(lab: Lab) -> None:
    queue = reserved(lab, "a", lease=None)
    before = lab.dump(queue)

    assert ends(lab, queue) == {"a": math.inf}
    assert queue.reap() == Outcome(Reason.EMPTY)
    assert queue.execute(operations.reserve()) == Outcome(Reason.EMPTY)

    assert lab.dump(queue) == before
    assert queue.ack("a", 1) is True


def test_the_lease_of_a_reserve_beats_the_queues(lab: Lab) -> None:
    queue = lab.queue(lease=60)
    queue.execute([operations.enqueue(id) for id in "abc"])

    assert lasts(lab, queue, "a", 600, lambda: queue.reserve(lease=600))
    assert lasts(lab, queue, "b", 60, queue.reserve)
    assert lasts(lab, queue, "c", 10, lambda: queue.reserve(lease=timedelta(seconds=10)))

    shift(lab, queue, 100)
    assert queue.reap().returned == ("c", "b")
    assert queue.ack("a", 1) is True


def test_a_reserve_may_have_a_lease_in_a_queue_without(lab: Lab) -> None:
    queue = lab.queue()
    queue.execute([operations.enqueue(id) for id in "ab"])

    assert lasts(lab, queue, "a", 30, lambda: queue.reserve(lease=30))
    queue.reserve()
    shift(lab, queue, 31)

    assert queue.reap().returned == ("a",), "and b is held without an end"


def test_the_lease_is_a_setting_that_others_adopt_and_obey(lab: Lab) -> None:
    one, other = lab.queue("leased", lease=timedelta(seconds=90)), lab.queue("leased")
    one.execute([operations.enqueue(id) for id in "abc"])

    assert other.settings().lease == 90
    assert lasts(lab, one, "a", 90, other.reserve)
    other.configure(lease=5)
    assert one.settings().lease == 5
    assert lasts(lab, one, "b", 5, one.reserve)
    other.configure(lease=None)
    assert one.settings().lease is None
    one.reserve()
    left = ends(lab, one)
    assert left["c"] == math.inf
    assert left["a"] - left["b"] > 60_000, "a lease is that of its reservation"


@pytest.mark.parametrize(
    ("stored", "given", "told"),
    [
        (60, 30, r"lease 60 seconds, not 30 seconds"),
        (60, None, r"lease 60 seconds, not None"),
        (None, 30, r"lease None, not 30 seconds"),
        (0.5, 0.001, r"lease 0\.5 seconds, not 0\.001 seconds"),
    ],
)
def test_a_lease_that_differs_is_an_error_that_names_both(
    lab: Lab, stored: float | None, given: float | None, told: str
) -> None:
    queue = lab.queue("differs", lease=stored)
    before = lab.dump(queue)

    with pytest.raises(SettingsMismatch, match=told):
        lab.queue("differs", lease=given)

    assert lab.dump(queue) == before
    assert lab.queue("differs", lease=stored).settings().lease == stored


# Extend


def test_extend_sets_the_end_from_now_longer_or_shorter(lab: Lab) -> None:
    queue = reserved(lab, "a")

    assert lasts(lab, queue, "a", 600, lambda: queue.extend("a", 1, 600))
    assert lasts(lab, queue, "a", 5, lambda: queue.extend("a", 1, 5))
    assert lasts(lab, queue, "a", 120, lambda: queue.extend("a", 1, timedelta(minutes=2)))
    shift(lab, queue, 100)
    assert lasts(lab, queue, "a", 120, lambda: queue.extend("a", 1, lease=120))


def test_extend_without_a_lease_takes_the_reservations_own(lab: Lab) -> None:
    """Not the queue's: a heartbeat must not cut a long lease short."""
    queue = lab.queue(lease=60)
    queue.enqueue("a")
    queue.reserve(lease=3600)

    assert lasts(lab, queue, "a", 3600, lambda: queue.extend("a", 1))
    queue.configure(lease=20)
    assert lasts(lab, queue, "a", 3600, lambda: queue.extend("a", 1, None))
    queue.configure(lease=None)
    assert lasts(lab, queue, "a", 3600, lambda: queue.extend("a", 1))


def test_one_that_extend_gave_is_the_reservations_own_too(lab: Lab) -> None:
    queue = reserved(lab, "a", "b")

    assert lasts(lab, queue, "a", 300, lambda: queue.extend("a", 1, 300))
    assert lasts(lab, queue, "a", 300, lambda: queue.extend("a", 1))
    assert lasts(lab, queue, "b", 60, lambda: queue.extend("b", 1))


@pytest.mark.parametrize("way", ["retry", "release", "reap", "fail and redrive"])
def test_the_next_reservation_has_nothing_of_it(lab: Lab, way: str) -> None:
    queue = lab.queue(lease=60)
    queue.enqueue("a")
    queue.reserve(lease=3600)
    if way == "reap":
        shift(lab, queue, 3601)
        assert queue.reap()
    elif way == "fail and redrive":
        assert queue.fail("a", 1)
        assert queue.redrive("a")
    else:
        assert getattr(queue, way)("a", 1)

    assert lasts(lab, queue, "a", 60, queue.reserve)
    assert lasts(lab, queue, "a", 60, lambda: queue.extend("a", 2))


def test_extend_without_a_lease_of_its_own_takes_the_queues(lab: Lab) -> None:
    queue = reserved(lab, "a")

    assert lasts(lab, queue, "a", 60, lambda: queue.extend("a", 1))
    queue.configure(lease=20)
    assert lasts(lab, queue, "a", 20, lambda: queue.extend("a", 1, None))
    queue.configure(lease=None)
    assert queue.extend("a", 1) is True
    assert ends(lab, queue) == {"a": math.inf}


def test_extend_of_a_reservation_without_an_end_leaves_it_without(lab: Lab) -> None:
    queue = reserved(lab, "a", lease=None)
    before = lab.dump(queue)

    assert queue.extend("a", 1) is True

    after = lab.dump(queue)
    assert after.pop("receipts") != before.pop("receipts"), "it took effect"
    assert after == before
    assert ends(lab, queue) == {"a": math.inf}


def test_extend_may_give_an_end_to_a_reservation_without(lab: Lab) -> None:
    queue = reserved(lab, "a", lease=None)

    assert lasts(lab, queue, "a", 30, lambda: queue.extend("a", 1, 30))
    shift(lab, queue, 31)

    assert queue.reap().returned == ("a",)


def test_of_several_extends_in_a_list_the_last_one_counts(lab: Lab) -> None:
    queue = reserved(lab, "a")
    batch = [operations.extend("a", 1, lease) for lease in (5, 500, 50, None)]

    assert lasts(lab, queue, "a", 500, lambda: queue.execute(batch[:2]))
    assert lasts(lab, queue, "a", 50, lambda: queue.execute(batch))


def test_an_extended_lease_keeps_the_job_from_being_reaped(lab: Lab) -> None:
    queue = reserved(lab, "a", "b")
    shift(lab, queue, 59)
    queue.extend("a", 1)
    shift(lab, queue, 2)

    assert queue.reap().returned == ("b",)
    assert queue.ack("a", 1) is True


@pytest.mark.parametrize("limit", [None, 1], ids=["waiting", "failed"])
def test_a_late_heartbeat_never_revives_a_reaped_lease(lab: Lab, limit: int | None) -> None:
    queue = reserved(lab, "a", max_attempts=limit)
    shift(lab, queue, 61)
    assert queue.reap()
    before = lab.dump(queue)
    assert "leases" not in before

    assert queue.extend("a", 1) is False
    assert queue.extend("a", 1, 3600) is False
    reason = queue.execute(operations.extend("a", 1, 3600)).reason
    assert reason is (Reason.FAILED if limit else Reason.WAITING)

    assert lab.dump(queue) == before


# Reap


def test_expired_jobs_come_back_in_the_order_of_their_ends_and_then_of_insertion(lab: Lab) -> None:
    ids = list("zyxwvutsrqpo")  # 12 of them: their numbers pass from one digit to two
    queue = reserved(lab, *ids)
    set_ends(lab, queue, **dict.fromkeys(ids, 20) | {"q": 10, "o": 30, "z": 25})
    wanted = ["q", *"yxwvutsrp", "z", "o"]

    assert queue.reap().returned == tuple(wanted)

    assert [queue.reserve().id for _ in ids] == wanted


def test_reserve_brings_them_back_in_the_same_order(lab: Lab) -> None:
    queue = reserved(lab, *"dcba")
    set_ends(lab, queue, d=2, c=3, b=1, a=2)

    assert [queue.reserve().id for _ in range(4)] == ["b", "d", "a", "c"]


def test_an_outcome_of_reap_tells_all_it_did_and_what_is_due(lab: Lab) -> None:
    queue = lab.queue(lease=60)
    queue.enqueue("a", max_attempts=1)
    queue.execute([operations.enqueue(id) for id in "bc"])
    queue.execute([operations.reserve()] * 2)
    queue.reserve(lease=3600)
    outcome = queue.reap()
    assert (bool(outcome), outcome.returned, outcome.failed) == (False, (), ())
    assert 50 < outcome.due <= 60
    shift(lab, queue, 61)

    outcome = queue.reap()

    assert bool(outcome) is True
    assert outcome.returned == ("b",)
    assert outcome.failed == (Failure("a", 1, FailureReason.EXPIRED),)
    assert outcome.more is False
    assert 3500 < outcome.due <= 3600 - 61
    queue.ack("c", 1)
    assert queue.reap() == Outcome(Reason.EMPTY), "nothing is due where nothing is in flight"


def test_reap_recovers_at_most_250_and_says_whether_there_are_more(lab: Lab) -> None:
    ids = [f"j{number}" for number in range(501)]
    queue = reserved(lab, *ids)
    shift(lab, queue, 61)

    first, second, third = (queue.reap() for _ in range(3))

    assert [len(outcome.returned) for outcome in (first, second, third)] == [250, 250, 1]
    assert [outcome.more for outcome in (first, second, third)] == [True, True, False]
    assert [outcome.due for outcome in (first, second, third)] == [0, 0, None]
    assert [*first.returned, *second.returned, *third.returned] == ids
    assert queue.reap() == Outcome(Reason.EMPTY)


def test_a_reap_of_exactly_as_many_as_it_may_has_no_more(lab: Lab) -> None:
    queue = reserved(lab, *(f"j{number}" for number in range(250)))
    shift(lab, queue, 61)

    outcome = queue.reap()

    assert (len(outcome.returned), outcome.more, outcome.due) == (250, False, None)


def test_reserve_recovers_at_most_64(lab: Lab) -> None:
    queue = reserved(lab, *(f"j{number}" for number in range(130)))
    shift(lab, queue, 61)

    left = []
    for _ in range(3):
        job = queue.reserve(lease=3600)
        assert job.attempt == 2
        left.append(sum(end < clock(lab.raw) for end in ends(lab, queue).values()))

    assert left == [66, 2, 0]


def test_a_reserve_that_only_met_failures_says_that_there_are_more(lab: Lab) -> None:
    queue = reserved(lab, *(f"j{number}" for number in range(130)), max_attempts=1)
    shift(lab, queue, 61)

    outcomes = [queue.execute(operations.reserve()) for _ in range(3)]

    assert [len(outcome.failed) for outcome in outcomes] == [64, 64, 2]
    assert [outcome.more for outcome in outcomes] == [True, True, False]
    assert {outcome.reason for outcome in outcomes} == {Reason.EMPTY}


def test_a_reserve_goes_on_by_itself_past_all_failures_to_a_job(lab: Lab) -> None:
    ids = [f"j{number}" for number in range(130)]
    queue = reserved(lab, *ids, max_attempts=1)
    queue.enqueue("late", max_attempts=2)
    queue.reserve(lease=61)  # the last one to be recovered
    shift(lab, queue, 62)

    assert queue.reserve() == Job("late", "", 2)
    assert {failed.id for failed in queue.failed(0, 200)} == set(ids)


def test_5000_expired_leases_are_recovered_by_reserve_calls_alone(embedded: Backend) -> None:
    lab = Lab(embedded, asynchronous=False)
    queue = reserved(lab, *(f"j{number}" for number in range(5000)))
    shift(lab, queue, 61)

    seen = set()
    for _ in range(5000):
        job = queue.reserve()
        assert job is not None, "as long as there is one to recover, no call is empty-handed"
        assert job.attempt == 2
        seen.add(job.id)
        assert queue.ack(job.id, job.attempt)

    assert len(seen) == 5000
    assert queue.reserve() is None
    assert ends(lab, queue) == {}
    lab.end()


# Workers' names


def test_the_workers_name_is_kept_with_the_job_while_it_is_in_flight(lab: Lab) -> None:
    queue = lab.queue(lease=60)
    queue.enqueue("a")

    def given_back() -> bool:
        shift(lab, queue, 61)
        return bool(queue.reap())

    ways: list[Callable[[int], Any]] = [
        lambda attempt: queue.retry("a", attempt),
        lambda attempt: queue.release("a", attempt),
        lambda attempt: given_back(),
    ]
    for attempt, way in enumerate(ways, 1):
        assert b"rack-7" not in record(lab, queue, "a")
        job = queue.reserve(worker="rack-7")
        held = Record.of(record(lab, queue, "a"))
        assert (held.token, held.worker) == (job.token, "rack-7")
        assert queue.extend("a", attempt) is True
        assert record(lab, queue, "a").endswith(b" rack-7")
        assert way(attempt)
    assert b"rack-7" not in record(lab, queue, "a")


def test_a_worker_without_a_name_is_nobody(lab: Lab) -> None:
    queue = reserved(lab, "a")

    assert Record.of(record(lab, queue, "a")).token
    assert Record.of(record(lab, queue, "a")).worker == ""


@pytest.mark.parametrize("worker", ["", "a b", "ä", "x" * 129, 1, True, b"w"])
def test_a_workers_name_outside_the_rule_is_refused(lab: Lab, worker: Any) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    before = lab.dump(queue)

    with pytest.raises((InvalidArgument, TypeError), match="a worker's name"):
        queue.reserve(worker=worker)

    assert lab.dump(queue) == before


# Input

UNUSABLE: list[Any] = [
    0,
    0.0,
    -1,
    -0.001,
    0.0001,
    0.00099,
    math.nan,
    math.inf,
    -math.inf,
    YEAR + 0.001,
    YEAR + 1,
    10**400,
    timedelta(0),
    timedelta(seconds=-1),
    timedelta(microseconds=999),
    timedelta(days=365, microseconds=1),
]
WRONG_TYPE: list[Any] = [True, False, "1", "", b"1", Decimal(1), 1j, [1], object()]


def doors(lab: Lab, queue: Any) -> list[Callable[[Any], Any]]:
    """All ways to give a lease."""
    return [
        lambda lease: lab.queue(queue.name, lease=lease),
        lambda lease: queue.configure(lease=lease),
        lambda lease: queue.reserve(lease=lease),
        lambda lease: queue.execute(operations.reserve(lease=lease)),
        lambda lease: queue.extend("held", 1, lease),
        lambda lease: queue.execute(operations.extend("held", 1, lease)),
    ]


@pytest.mark.parametrize(
    ("unusable", "error"), [(UNUSABLE, InvalidArgument), (WRONG_TYPE, TypeError)]
)
def test_a_lease_that_cannot_be_used_is_one_error_and_changes_nothing(
    lab: Lab, unusable: list[Any], error: type[Exception]
) -> None:
    queue = lab.queue("strict", lease=60)
    queue.execute([operations.enqueue("held"), operations.enqueue("waiting")])
    queue.reserve()
    before = lab.dump(queue)

    for value in unusable:
        for give in doors(lab, queue):
            with pytest.raises(error, match="a lease"):
                give(value)

    assert lab.dump(queue) == before


def test_a_queue_with_an_unusable_lease_is_not_made(lab: Lab) -> None:
    for value in (0, "1"):
        with pytest.raises((InvalidArgument, TypeError)):
            lab.queue("never-made", lease=value)

    assert not list(lab.raw.scan_iter(match="durableq:{never-made}:*"))


@pytest.mark.parametrize(
    ("lease", "milliseconds"),
    [
        (0.001, 1),
        (0.0015, 2),
        (1, 1000),
        (0.1 + 0.2, 300),
        (1.0004, 1001),
        (YEAR, YEAR * 1000),
        (timedelta(milliseconds=1), 1),
        (timedelta(microseconds=1001), 2),
        (timedelta(days=365), YEAR * 1000),
    ],
)
def test_a_lease_is_whole_milliseconds_and_none_shorter_than_asked(
    lab: Lab, lease: Any, milliseconds: int
) -> None:
    queue = lab.queue(lease=lease)
    queue.enqueue("a")
    queue.reserve()

    assert queue.settings().lease == milliseconds / 1000
    before = clock(lab.raw)
    assert queue.extend("a", 1) is True
    by_queue = ends(lab, queue)["a"] - milliseconds
    assert queue.extend("a", 1, lease) is True
    by_call = ends(lab, queue)["a"] - milliseconds
    assert before <= by_queue <= by_call <= clock(lab.raw)


# Ids that are nobody's

LATE: dict[str, Callable[[str, int], Any]] = {
    "extend": lambda id, attempt: operations.extend(id, attempt, 60),
    "retry": lambda id, attempt: operations.retry(id, attempt, error="late"),
    "cancel": lambda id, _: operations.cancel(id),
    "ack": operations.ack,
    "fail": lambda id, attempt: operations.fail(id, attempt, error="late"),
    "release": operations.release,
    "reap": lambda id, _: operations.reap(),
}


def with_gone_ids(lab: Lab) -> tuple[Any, dict[str, Reason]]:
    """Make a queue with ids that were, or never were, active; and one job that is."""
    queue = lab.queue(lease=3600, max_attempts=2)
    queue.execute([operations.enqueue(id, "payload") for id in ("acked", "cancelled", "purged")])
    queue.execute([operations.reserve(worker="w")] * 3)
    queue.ack("acked", 1)
    queue.cancel("cancelled")
    queue.fail("purged", 1, error="broken")
    assert queue.purge_failed() == 1
    queue.enqueue("other")
    queue.reserve()
    return queue, {
        "acked": Reason.FINISHED,
        "cancelled": Reason.CANCELLED,
        "purged": Reason.PURGED,
        "unknown": Reason.UNKNOWN,
    }


def test_no_operation_makes_anything_of_an_id_that_is_gone_or_unknown(lab: Lab) -> None:
    queue, gone = with_gone_ids(lab)
    before = lab.dump(queue)
    verbs = list(LATE)

    # Round the circle both ways: each one comes right after each of its neighbors, and first.
    for order in (verbs, verbs[::-1]):
        for verb in order:
            for id, reason in gone.items():
                outcome = queue.execute(LATE[verb](id, 1))
                assert outcome.reason is (Reason.EMPTY if verb == "reap" else reason), (verb, id)
                assert not outcome
            assert lab.dump(queue) == before, verb
    for id, reason in gone.items():
        assert queue.execute(operations.redrive(id)).reason is reason
    assert lab.dump(queue) == before


@pytest.mark.slow
def test_nor_in_whatever_order_they_come(embedded: Backend) -> None:
    """All 5,040 orders of the seven. A list leaves receipts, and these are all that it leaves."""
    lab = Lab(embedded, asynchronous=False)
    queue, gone = with_gone_ids(lab)
    before = lab.dump(queue)

    for first, *orders in _chunks(itertools.permutations(LATE), 40):
        batch = [LATE[verb](id, 1) for order in (first, *orders) for verb in order for id in gone]
        assert not any(queue.execute(batch))
        after = lab.dump(queue)
        assert after | {"receipts": 0} == before | {"receipts": 0}, (first, orders)
    assert queue.ack("other", 1) is True
    lab.end()


def _chunks(values: Any, size: int) -> Any:
    values = iter(values)
    while chunk := list(itertools.islice(values, size)):
        yield chunk
