"""Priority: higher first, then by insertion; strict, whatever comes meanwhile."""

import random
from typing import Any

import pytest
from support import Lab, taken

from durableq import InvalidArgument, Job, Reason, operations


def test_higher_goes_first_then_who_came_first(lab: Lab) -> None:
    queue = lab.queue()
    for id, priority in (("a", 0), ("b", -1), ("c", 7), ("d", 0), ("e", 7), ("f", 1000), ("g", -1)):
        assert queue.enqueue(id, priority=priority) is True

    assert [job.id for job in queue.peek(9)] == ["f", "c", "e", "a", "d", "b", "g"]
    assert taken(queue) == ["f", "c", "e", "a", "d", "b", "g"]


def test_all_priorities_in_any_order(lab: Lab) -> None:
    queue = lab.queue()
    numbers = random.Random(3).sample(range(-1000, 1001), 120)
    numbers += [-1000, 1000, 0, 0, -1, 1]
    jobs = [(f"j{at}", number) for at, number in enumerate(numbers)]

    queue.execute([operations.enqueue(id, priority=number) for id, number in jobs])

    expected = [id for id, _ in sorted(jobs, key=lambda job: -job[1])]
    assert [outcome.job.id for outcome in queue.execute([operations.reserve()] * len(jobs))] == (
        expected
    )


def test_a_retried_job_keeps_its_priority_and_counts_as_inserted_now(lab: Lab) -> None:
    queue = lab.queue()
    for id, priority in (("a", 5), ("b", 5), ("c", 0)):
        queue.enqueue(id, priority=priority)
    queue.reserve()

    assert queue.retry("a", 1) is True

    assert taken(queue) == ["b", "a", "c"]


def test_a_released_job_goes_to_the_head_of_its_own_priority(lab: Lab) -> None:
    queue = lab.queue()
    for id, priority in (("low", -5), ("a", 5), ("b", 5), ("plain", 0)):
        queue.enqueue(id, priority=priority)
    assert [queue.reserve().id for _ in range(4)] == ["a", "b", "plain", "low"]
    queue.enqueue("c", priority=5)
    queue.enqueue("plain2")
    queue.enqueue("low2", priority=-5)
    queue.enqueue("high", priority=6)

    for id in ("low", "b", "plain", "a"):
        assert queue.release(id, 1) is True

    assert taken(queue) == ["high", "a", "b", "c", "plain", "plain2", "low", "low2"]


def test_a_redriven_or_expired_job_keeps_its_priority(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    queue.enqueue("low", priority=-5)
    queue.enqueue("high", priority=5)
    queue.reserve()
    queue.fail("high", 1)
    queue.enqueue("plain")

    assert queue.redrive("high") is True
    assert queue.reserve() == Job("high", "", 2)
    (member,) = lab.raw.zrange(lab.key(queue, "leases"), 0, -1)
    lab.raw.zadd(lab.key(queue, "leases"), {member: 1})

    assert taken(queue) == ["high", "plain", "low"]


def test_running_jobs_go_on_whatever_comes(lab: Lab) -> None:
    queue = lab.queue(capacity=2)
    queue.enqueue("low", priority=-1000)
    low = queue.reserve()
    queue.enqueue("high", priority=1000)

    assert queue.enqueue("more", priority=1000) is False
    assert queue.ack("low", low.attempt) is True


def test_who_is_ahead_may_starve_the_rest(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("low", priority=-1)
    for number in range(50):
        queue.enqueue(f"high{number}", priority=1)
        assert queue.reserve().id == f"high{number}"

    assert queue.counts().oldest is not None
    assert queue.reserve().id == "low"


def test_cancelled_jobs_of_any_priority_are_gone(lab: Lab) -> None:
    queue = lab.queue()
    for number in range(30):
        queue.enqueue(f"j{number}", priority=number % 3 - 1)

    for number in range(0, 30, 2):
        assert queue.cancel(f"j{number}") is True

    rest = sorted(range(1, 30, 2), key=lambda number: -(number % 3 - 1))
    assert taken(queue) == [f"j{number}" for number in rest]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (1001, InvalidArgument),
        (-1001, InvalidArgument),
        (10**30, InvalidArgument),
        (True, TypeError),
        (1.0, TypeError),
        ("1", TypeError),
        (None, TypeError),
    ],
)
def test_a_priority_that_cannot_be_used_is_refused(lab: Lab, value: Any, error: type) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    before = lab.dump(queue)

    with pytest.raises(error, match="a priority"):
        queue.enqueue("b", priority=value)
    if value is not None:
        with pytest.raises(error, match="a priority"):
            queue.reschedule("a", priority=value)

    assert lab.dump(queue) == before


def test_rescheduling_the_priority_moves_a_job_to_its_tail(lab: Lab) -> None:
    queue = lab.queue()
    for id, priority in (("a", 0), ("b", 0), ("c", 5), ("d", -5)):
        queue.enqueue(id, priority=priority)

    assert queue.reschedule("a", priority=5) is True
    assert queue.reschedule("c", priority=0) is True
    assert queue.reschedule("d", priority=1000) is True
    assert queue.get("d").priority == 1000

    assert taken(queue) == ["d", "a", "b", "c"]


def test_a_job_may_leave_the_lists_and_come_back_as_often_as_one_likes(lab: Lab) -> None:
    queue = lab.queue()
    queue.execute([operations.enqueue(id) for id in "abc"])

    for _ in range(20):
        assert queue.reschedule("a", priority=1) is True
        assert queue.reschedule("a", priority=0) is True
    assert queue.counts().waiting == 3
    assert queue.position("a").at_least <= 2 <= queue.position("a").at_most

    assert taken(queue) == ["b", "c", "a"]
    assert lab.raw.llen(lab.key(queue, "waiting")) == 0


def test_a_job_that_comes_back_behind_its_own_ghost_is_cancelled_once(lab: Lab) -> None:
    queue = lab.queue()
    queue.execute([operations.enqueue(id) for id in "ab"])
    queue.reschedule("a", delay=0)

    assert queue.cancel("a") is True
    assert queue.cancel("a") is False

    assert taken(queue) == ["b"]
    assert queue.counts().retired == 1


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (("reserve",), Reason.IN_FLIGHT),
        (("cancel", "a"), Reason.CANCELLED),
    ],
)
def test_what_does_not_wait_is_not_rescheduled(lab: Lab, prepare: Any, reason: Reason) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    getattr(queue, prepare[0])(*prepare[1:])
    before = lab.dump(queue)

    outcome = queue.execute(operations.reschedule("a", priority=1, delay=5))

    assert (bool(outcome), outcome.reason) == (False, reason)
    assert queue.execute(operations.reschedule("never", delay=1)).reason is Reason.UNKNOWN
    assert lab.dump(queue) == before


def test_rescheduling_nothing_is_an_error(lab: Lab) -> None:
    with pytest.raises(InvalidArgument, match="delay, at or priority"):
        lab.queue().reschedule("a")
