"""Looking: counts, single jobs, pages, positions, the history. None of it changes anything."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import Backend, Lab, Record

from durableq import (
    BYTES,
    Counts,
    Event,
    FailureReason,
    InvalidArgument,
    JobView,
    Page,
    Position,
    Queue,
    QueueCorrupt,
    Reason,
    operations,
)
from durableq.keys import PARTS

STATES = ("waiting", "delayed", "in_flight", "failed")


def full_of_everything(lab: Lab) -> Any:
    queue = lab.queue(capacity=20, lease=3600, history=100)
    for id in ("w1", "w2", "held", "gone", "bad", "done"):
        queue.enqueue(id, f"of {id}", priority=0 if id.startswith("w") else 9)
    for id in ("held", "gone", "bad", "done"):
        assert queue.reserve(worker=f"worker of {id}".replace(" ", "-")).id == id
    queue.cancel("gone")
    queue.fail("bad", 1, error="too bad")
    queue.ack("done", 1)
    queue.enqueue("later", delay=3600)
    queue.enqueue("high", priority=1)
    return queue


def ids(page: Page[Any]) -> list[str]:
    return [job.id for job in page.jobs]


def walked(queue: Any, state: str, count: int) -> list[str]:
    found, mark = [], None
    while True:
        page = queue.jobs(state, count=count, after=mark)
        assert len(page.jobs) <= count
        found += ids(page)
        mark = page.next
        if mark is None:
            return found


def test_counts_are_of_one_moment_and_exact(lab: Lab) -> None:
    queue = full_of_everything(lab)

    counts = queue.counts()

    assert counts == Counts(
        waiting=3,
        delayed=1,
        in_flight=1,
        failed=1,
        retired=3,
        capacity=20,
        paused=False,
        oldest=counts.oldest,
    )
    assert 0 <= counts.oldest < 60


def test_an_empty_queue_counts_nothing(lab: Lab) -> None:
    assert lab.queue().counts() == Counts(0, 0, 0, 0, 0, None, False, None)


@pytest.mark.parametrize("priority", [0, 3, -3])
def test_the_oldest_is_the_one_that_has_waited_longest(lab: Lab, priority: int) -> None:
    queue = lab.queue()
    queue.enqueue("old", priority=priority)
    record = Record.of(lab.raw.hget(lab.key(queue, "jobs"), "old")).older(90)
    lab.raw.hset(lab.key(queue, "jobs"), "old", record.text())
    for number in (0, 1, -1, 1000, -1000):
        queue.enqueue(f"new{number}", priority=number)

    assert 90 <= queue.counts().oldest < 150
    queue.cancel("old")
    assert queue.counts().oldest < 60


def test_the_oldest_is_found_whatever_number_of_priorities_is_in_use(lab: Lab) -> None:
    queue, lowest = lab.queue(), "j-1000"
    queue.execute([operations.enqueue(f"j{p}", priority=p) for p in range(-1000, 1001)])
    queue.execute(operations.enqueue("late", priority=-1000))
    record = Record.of(lab.raw.hget(lab.key(queue, "jobs"), lowest)).older(90)
    lab.raw.hset(lab.key(queue, "jobs"), lowest, record.text())

    assert queue.counts().oldest >= 90
    if lab.backend.fake is None:
        lab.raw.config_resetstat()
        queue.counts()
        ran = lab.raw.info("commandstats").values()
        assert sum(command["calls"] for command in ran) < 1000


def test_the_oldest_is_found_behind_cancelled_ones(lab: Lab) -> None:
    queue = lab.queue()
    queue.execute([operations.enqueue(f"j{number}") for number in range(200)])
    queue.execute([operations.cancel(f"j{number}") for number in range(190)])

    assert queue.counts().oldest is not None
    assert [job.id for job in queue.peek(2)] == ["j190", "j191"]


def test_a_job_is_told_in_every_state(lab: Lab) -> None:
    queue = full_of_everything(lab)
    second = timedelta(seconds=1)
    seconds, _ = lab.raw.time()
    now = datetime.fromtimestamp(seconds, UTC)

    held, bad, later = (queue.get(id, payload=True) for id in ("held", "bad", "later"))

    assert held == JobView(
        "held",
        Reason.IN_FLIGHT,
        attempt=1,
        spent=1,
        deaths=0,
        limit=None,
        priority=9,
        enqueued_at=held.enqueued_at,
        changed_at=held.changed_at,
        lease_ends_at=held.lease_ends_at,
        worker="worker-of-held",
        payload="of held",
    )
    assert abs(held.lease_ends_at - now - timedelta(hours=1)) < 60 * second
    assert abs(held.enqueued_at - now) < 60 * second
    assert (bad.state, bad.reason, bad.error) == (
        Reason.FAILED,
        FailureReason.REJECTED,
        "too bad",
    )
    assert bad.failed_at == bad.changed_at
    assert (later.state, later.attempt, later.payload) == (Reason.DELAYED, 0, "")
    assert abs(later.due_at - now - timedelta(hours=1)) < 60 * second
    assert queue.get("w1").payload is None, "only on request"
    for id in ("done", "gone", "never", "", "x" * 500, "\ud800"):
        assert queue.get(id) is None


def test_a_payload_that_cannot_be_decoded_does_not_hide_the_job(lab: Lab) -> None:
    queue = lab.queue("q", codec=BYTES)
    queue.enqueue("a", b"\xff")
    lab.raw.hset(lab.key(queue, "meta"), "codec", "text")

    view = lab.queue("q").get("a", payload=True)

    assert (view.payload, type(view.undecodable).__name__) == (None, "DecodeError")
    assert lab.queue("q").peek(1, payload=True)[0].undecodable.data == b"\xff"


def test_peek_is_what_reserve_will_hand_out(lab: Lab) -> None:
    queue = full_of_everything(lab)

    assert [job.id for job in queue.peek()] == ["high"]
    assert [(job.id, job.payload) for job in queue.peek(9, payload=True)] == [
        ("high", ""),
        ("w1", "of w1"),
        ("w2", "of w2"),
    ]
    assert [queue.reserve().id for _ in range(3)] == ["high", "w1", "w2"]


@pytest.mark.parametrize("count", [7, 100, 101])
@pytest.mark.parametrize("state", STATES)
def test_pages_join_without_a_seam(lab: Lab, state: str, count: int) -> None:
    queue = lab.queue()
    names = [f"j{number}" for number in range(210)]
    how = {"delay": 3600} if state == "delayed" else {}
    queue.execute([operations.enqueue(id, **how) for id in names])
    if state in ("in_flight", "failed"):
        queue.execute([operations.reserve()] * 210)
    if state == "failed":
        queue.execute([operations.fail(id, 1) for id in names])
        names.reverse()

    assert walked(queue, state, count) == names
    for other in STATES:
        assert other == state or walked(queue, other, count) == []


def test_the_pages_of_waiting_jobs_go_by_priority_and_past_cancelled_ones(lab: Lab) -> None:
    queue = lab.queue()
    jobs = [(f"j{number}", number % 5 - 2) for number in range(120)]
    queue.execute([operations.enqueue(id, priority=priority) for id, priority in jobs])
    queue.execute([operations.cancel(f"j{number}") for number in range(0, 120, 3)])
    rest = [job for at, job in enumerate(jobs) if at % 3]
    expected = [id for id, _ in sorted(rest, key=lambda job: -job[1])]

    for count in (1, 7, 50, 500):
        assert walked(queue, "waiting", count) == expected


def test_what_comes_and_goes_while_paging_moves_nothing_else(lab: Lab) -> None:
    queue = lab.queue()
    queue.execute([operations.enqueue(f"j{number}") for number in range(40)])
    page = queue.jobs("waiting", count=10)
    assert ids(page) == [f"j{number}" for number in range(10)]

    for number in (0, 3, 9, 10, 25):  # the last one of the page, and the first of the next
        queue.cancel(f"j{number}")
    for _ in range(5):
        queue.reserve()
    queue.enqueue("high", priority=9)
    queue.reschedule("j12", delay=0)

    rest = queue.jobs("waiting", count=100, after=page.next)
    assert ids(rest) == [f"j{n}" for n in range(11, 40) if n not in (12, 25)] + ["j12"]


def test_a_page_of_large_payloads_is_cut_and_goes_on(lab: Lab) -> None:
    queue = lab.queue(codec=BYTES)
    large = b"x" * 1_000_000
    for number in range(10):
        queue.enqueue(f"j{number}", large)

    page = queue.jobs("waiting", payload=True)

    assert ids(page) == [f"j{number}" for number in range(10)]
    assert all(job.payload == large for job in page.jobs)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"state": "finished"}, InvalidArgument),
        ({"state": ""}, InvalidArgument),
        ({"state": None}, TypeError),
        ({"state": b"waiting"}, TypeError),
        ({"state": "waiting", "count": 0}, InvalidArgument),
        ({"state": "waiting", "count": -1}, InvalidArgument),
        ({"state": "waiting", "count": 1.5}, TypeError),
        ({"state": "waiting", "count": True}, TypeError),
        ({"state": "waiting", "after": ""}, InvalidArgument),
        ({"state": "waiting", "after": "nan 5"}, InvalidArgument),
        ({"state": "waiting", "after": "1 2\n"}, InvalidArgument),
        ({"state": "waiting", "after": 7}, TypeError),
    ],
    ids=repr,
)
def test_a_page_that_cannot_be_is_refused(lab: Lab, arguments: Any, error: type) -> None:
    with pytest.raises(error):
        lab.queue().jobs(**arguments)


def test_positions_count_who_is_ahead(lab: Lab) -> None:
    queue = full_of_everything(lab)

    assert queue.position("high") == Position(0, 0)
    assert queue.position("w1") == Position(1, 1)
    assert queue.position("w2") == Position(2, 2)
    for id in ("held", "later", "bad", "done", "never"):
        assert queue.position(id) is None


def test_a_position_behind_cancelled_ones_has_honest_bounds(lab: Lab) -> None:
    queue = lab.queue()
    queue.execute([operations.enqueue(f"j{number}") for number in range(100)])
    queue.execute([operations.cancel(f"j{number}") for number in range(0, 100, 2)])

    assert queue.position("j99") == Position(49, 99)
    assert queue.position("j1") == Position(0, 1)


def test_looking_changes_nothing(lab: Lab) -> None:
    queue = full_of_everything(lab)
    queue.enqueue("due", delay=3600)
    for key in ("delayed", "leases"):  # what has ended is left for a reserve or reap to find
        for member in lab.raw.zrange(lab.key(queue, key), 0, -1):
            lab.raw.zadd(lab.key(queue, key), {member: 1})
    before = lab.dump(queue)

    queue.counts()
    queue.peek(5, payload=True)
    queue.history()
    for state in STATES:
        queue.jobs(state)
    for id in ("w1", "held", "later", "bad", "done", "never"):
        queue.get(id, payload=True)
        queue.position(id)

    assert lab.dump(queue) == before
    assert queue.get("held").state is Reason.IN_FLIGHT
    assert queue.get("due").state is Reason.DELAYED


@pytest.mark.parametrize("part", ["jobs", "payloads"])
def test_a_damaged_record_is_told(lab: Lab, part: str) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    if part == "jobs":
        lab.raw.hset(lab.key(queue, "jobs"), "a", "1 1w broken")
    else:
        lab.raw.hdel(lab.key(queue, "payloads"), "a")

    with pytest.raises(QueueCorrupt, match="a"):
        queue.get("a", payload=True)
    with pytest.raises(QueueCorrupt, match="a"):
        queue.jobs("waiting", payload=True)


def test_a_queue_that_is_gone_is_told_by_every_view(lab: Lab) -> None:
    queue = lab.queue("gone")
    queue.counts()
    other = lab.queue("gone")
    other.destroy()

    for look in (queue.counts, queue.peek, queue.history, lambda: queue.get("a")):
        with pytest.raises(Exception, match="gone"):
            look()


# History


def test_the_history_tells_what_happened(lab: Lab) -> None:
    queue = full_of_everything(lab)
    queue.reschedule("later", delay=9)
    queue.redrive("bad")

    assert [(each.event, each.attempt, each.worker) for each in queue.history("bad")] == [
        (Event.ENQUEUED, 0, ""),
        (Event.RESERVED, 1, "worker-of-bad"),
        (Event.FAILED, 1, "worker-of-bad"),
        (Event.REDRIVEN, 1, ""),
    ]
    assert [each.event for each in queue.history("later")] == ["enqueued", "rescheduled"]
    everything = queue.history()
    assert [each.time for each in everything] == sorted(each.time for each in everything)
    assert len(everything) == 6 + 4 + 3 + 2 + 2
    assert queue.history("never") == []
    with pytest.raises(TypeError):
        queue.history(7)


def test_the_history_keeps_the_last_ones(lab: Lab) -> None:
    queue = lab.queue(history=300)
    queue.execute([operations.enqueue(f"j{number}") for number in range(1000)])

    assert [each.id for each in queue.history()] == [f"j{number}" for number in range(700, 1000)]
    assert lab.raw.xlen(lab.key(queue, "history")) <= 300 + 1000
    queue.configure(history=5)
    assert [each.id for each in queue.history()] == [f"j{number}" for number in range(995, 1000)]
    queue.configure(history=None)
    assert queue.history() == []
    assert lab.raw.exists(lab.key(queue, "history")) == 0
    queue.enqueue("more")
    assert queue.history() == []


def test_without_being_asked_for_there_is_no_history(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")

    assert queue.history() == []
    assert queue.settings().history is None
    assert lab.raw.exists(lab.key(queue, "history")) == 0


def test_a_lasting_history_of_short_jobs_has_a_bound(real: Backend) -> None:
    with real.client() as raw, Queue(redis=real.url, history=100) as queue:
        for _ in range(20):
            queue.execute([operations.enqueue(f"{_}-{number}") for number in range(100)])
            outcomes = queue.execute([operations.reserve()] * 100)
            queue.execute([operations.ack(each.job.id, 1) for each in outcomes])
        key = queue._definition.keys[PARTS.index("history")]
        assert raw.xlen(key) < 400, "the cut is at a node of the stream"
        assert len(queue.history()) == 100
        queue.destroy()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, InvalidArgument),
        (-1, InvalidArgument),
        (10**7, InvalidArgument),
        (True, TypeError),
        (1.0, TypeError),
        (math.nan, TypeError),
        ("5", TypeError),
    ],
    ids=repr,
)
def test_a_history_that_cannot_be_is_refused(lab: Lab, value: Any, error: type) -> None:
    with pytest.raises(error, match="history"):
        lab.queue(history=value)
    with pytest.raises(error, match="history"):
        lab.queue().configure(history=value)
