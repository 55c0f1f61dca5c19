import pytest
from support import Lab

from durableq import Job, QueueCorrupt, Reason, operations


def test_the_oldest_waiting_job_comes_first(lab: Lab) -> None:
    queue = lab.queue()
    for id in "abc":
        queue.enqueue(id, id.upper())

    jobs = [queue.reserve() for _ in range(3)]

    assert jobs == [Job("a", "A", 1), Job("b", "B", 1), Job("c", "C", 1)]


def test_none_when_nothing_waits_even_if_others_are_in_flight(lab: Lab) -> None:
    queue = lab.queue()
    assert queue.reserve() is None
    queue.enqueue("a")
    queue.reserve()
    before = lab.dump(queue)

    assert queue.reserve() is None
    assert queue.execute(operations.reserve()).reason is Reason.EMPTY

    assert lab.dump(queue) == before


def test_attempts_count_up_across_retries(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")

    for attempt in range(1, 15):
        assert queue.reserve().attempt == attempt
        assert queue.retry("a", attempt) is True


def test_each_reservation_has_a_claim_token_of_its_own(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    first = queue.reserve()
    queue.retry("a", 1)
    second = queue.reserve()

    assert first.token
    assert second.token
    assert first.token != second.token
    assert first.token not in repr(first)


def test_cancelled_jobs_are_passed_over(lab: Lab) -> None:
    queue = lab.queue()
    for id in "abcdefg":
        queue.enqueue(id)
    for id in "aceg":
        queue.cancel(id)

    assert [queue.reserve().id for _ in range(3)] == ["b", "d", "f"]
    assert queue.reserve() is None
    assert not lab.raw.exists(lab.key(queue, "waiting"), lab.key(queue, "front"))


def test_a_queue_by_the_same_name_hands_out_the_same_jobs(lab: Lab) -> None:
    one, other = lab.queue("shared"), lab.queue("shared")
    one.enqueue("a", "A")

    assert other.reserve() == Job("a", "A", 1)
    assert one.reserve() is None


def test_queues_share_nothing(lab: Lab) -> None:
    one, other = lab.queue(), lab.queue()
    assert one.name != other.name
    one.enqueue("a")
    one.reserve()

    assert other.enqueue("a") is True
    assert other.ack("a", 1) is False
    assert other.cancel("a") is True
    assert one.ack("a", 1) is True


def test_a_waiting_id_without_its_job_is_an_error_and_not_passed_over(lab: Lab) -> None:
    queue = lab.queue()
    for id in "abc":
        queue.enqueue(id)
    queue.cancel("a")
    lab.raw.hdel(lab.key(queue, "jobs"), "b")
    before = lab.dump(queue)

    with pytest.raises(QueueCorrupt, match="waiting ids whose jobs are missing"):
        queue.reserve()

    assert lab.dump(queue) == before
