import pytest
from support import Lab

from durableq import Job, QueueCorrupt, Reason, operations


@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_the_order_of_the_others_is_kept(lab: Lab, gone: str) -> None:
    queue = lab.queue()
    for id in "abc":
        queue.enqueue(id)

    assert queue.cancel(gone) is True

    assert [queue.reserve().id for _ in range(2)] == [id for id in "abc" if id != gone]
    assert queue.reserve() is None


def test_an_in_flight_job_is_removed_and_its_reservation_void(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    job = queue.reserve()

    assert queue.cancel("a") is True

    assert queue.ack("a", 1) is False
    assert queue.ack("a", 1, token=job.token) is False
    assert queue.retry("a", 1) is False
    assert queue.reserve() is None


def test_a_job_is_cancelled_once(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.cancel("a")
    before = lab.dump(queue)

    assert queue.cancel("a") is False
    assert queue.execute(operations.cancel("a")).reason is Reason.CANCELLED

    assert lab.dump(queue) == before


def test_a_finished_or_unknown_job_is_not_cancelled(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    queue.ack("a", 1)
    before = lab.dump(queue)

    assert queue.cancel("a") is False
    assert queue.cancel("b") is False
    assert queue.execute(operations.cancel("a")).reason is Reason.FINISHED
    assert queue.execute(operations.cancel("b")).reason is Reason.UNKNOWN

    assert lab.dump(queue) == before


def test_a_cancelled_job_leaves_nothing_but_its_id(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a", "A")
    queue.reserve()
    queue.retry("a", 1, error="broken")

    queue.cancel("a")

    left = lab.dump(queue)
    assert left.keys() == {"meta", "retired", "cancelled", "receipts", "bell"}


def test_many_cancelled_jobs_before_the_waiting_ones_are_passed_over(lab: Lab) -> None:
    queue = lab.queue()
    ids = [f"j{i}" for i in range(5000)]
    queue.execute([operations.enqueue(id) for id in ids])
    queue.execute([operations.cancel(id) for id in ids[:2400]])
    queue.execute([operations.cancel(id) for id in ids[2401:3500:2]])

    assert queue.reserve() == Job("j2400", "", 1)
    jobs = queue.execute([operations.reserve()] * 3000)
    assert [job.job.id for job in jobs if job] == [*ids[2402:3500:2], *ids[3500:]]


def test_the_lists_stay_short_however_many_are_cancelled(lab: Lab) -> None:
    queue = lab.queue()
    queue.execute([operations.enqueue(f"parked{i}") for i in range(1000)])
    longest = 0
    for start in range(0, 12_000, 500):
        ids = [f"j{i}" for i in range(start, start + 500)]
        queue.execute([operations.enqueue(id) for id in ids])
        queue.execute([operations.cancel(id) for id in ids])
        lists = [lab.raw.llen(lab.key(queue, part)) for part in ("front", "waiting")]
        longest = max(longest, sum(lists))

    assert longest < 4000
    jobs = queue.execute([operations.reserve()] * 1001)
    assert [job.job.id for job in jobs if job] == [f"parked{i}" for i in range(1000)]


def test_a_waiting_job_whose_id_is_in_no_list_is_an_error_and_nothing_is_written(
    lab: Lab,
) -> None:
    queue = lab.queue()
    for id in "ab":
        queue.enqueue(id)
    lab.raw.delete(lab.key(queue, "waiting"))
    before = lab.dump(queue)

    with pytest.raises(QueueCorrupt, match="ids are in no list"):
        queue.cancel("a")

    assert lab.dump(queue) == before
