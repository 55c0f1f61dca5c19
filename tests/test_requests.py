"""Request tokens in the user's hands, and the receipts behind them."""

import pytest
from support import Backend, Lab

from durableq import TEXT, InvalidName, Queue, Reason, RequestRefused, operations
from durableq.delivery import Delivery
from durableq.operations import Plan


def test_the_same_token_is_the_same_call(lab: Lab) -> None:
    queue = lab.queue()

    assert [queue.enqueue("a", "A", request="r1") for _ in range(3)] == [True] * 3
    jobs = [queue.reserve(request="r2") for _ in range(3)]
    assert jobs == [jobs[0]] * 3
    assert {job.token for job in jobs} == {"r2/0.1"}
    assert [queue.retry("a", 1, error="e", request="r3") for _ in range(3)] == [True] * 3
    assert queue.reserve().attempt == 2
    assert [queue.ack("a", 2, request="r4") for _ in range(3)] == [True] * 3
    queue.enqueue("b")
    assert [queue.cancel("b", request="r5") for _ in range(3)] == [True] * 3

    assert lab.dump(queue)["retired"] == {b"a", b"b"}


def test_a_new_call_is_a_repeat(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a", request="r1")

    assert queue.enqueue("a", request="r2") is False
    assert queue.enqueue("a") is False


def test_a_repeated_call_changes_nothing(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("a", request="r1")
    queue.reserve(request="r2")
    before = lab.dump(queue)

    queue.enqueue("a", request="r1")
    queue.reserve(request="r2")

    assert lab.dump(queue) == before


def test_a_refused_call_of_a_users_own_token_stays_refused(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("a")
    assert queue.enqueue("b", request="r1") is False

    queue.cancel("a")

    assert queue.enqueue("b", request="r1") is False
    assert queue.enqueue("b", request="r2") is True


def test_a_token_belongs_to_one_call(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a", "A", request="r1")
    before = lab.dump(queue)

    for other in (
        lambda: queue.enqueue("b", "A", request="r1"),
        lambda: queue.enqueue("a", "B", request="r1"),
        lambda: queue.reserve(request="r1"),
        lambda: queue.cancel("a", request="r1"),
        lambda: queue.ack("a", 1, request="r1"),
    ):
        with pytest.raises(RequestRefused, match="different call"):
            other()

    assert lab.dump(queue) == before


def test_a_token_from_before_the_lanes_last_call_is_refused(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a", request="lane/0.5")
    before = lab.dump(queue)

    with pytest.raises(RequestRefused, match="later request"):
        queue.enqueue("b", request="lane/0.4")

    assert lab.dump(queue) == before


def test_a_bad_token_is_refused_before_anything_is_sent(lab: Lab) -> None:
    queue = lab.queue()
    before = lab.dump(queue)

    with pytest.raises(InvalidName, match="request token"):
        queue.enqueue("a", request="not a token")
    with pytest.raises(TypeError, match="request token"):
        queue.enqueue("a", request=7)

    assert lab.dump(queue) == before


def test_one_callers_calls_share_a_lane(lab: Lab) -> None:
    queue = lab.queue()
    for i in range(50):
        queue.enqueue(f"j{i}")
        queue.ack(f"j{i}", queue.reserve().attempt)

    assert len(lab.dump(queue)["receipts"]) == 1


def test_a_repeated_reserve_reads_the_payload_again(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a", "payload")
    queue.reserve(request="r1")

    assert not any(b"payload" in text for text in lab.dump(queue)["receipts"].values())
    assert queue.reserve(request="r1").payload == "payload"


def test_a_repeated_reserve_takes_no_other_job_for_one_that_was_cancelled(lab: Lab) -> None:
    queue = lab.queue()
    for id in "abc":
        queue.enqueue(id)
    assert queue.reserve(request="r1").id == "a"
    queue.cancel("a")
    before = lab.dump(queue)

    assert queue.reserve(request="r1") is None
    assert queue.execute(operations.reserve(), request="r1").reason is Reason.CANCELLED

    assert lab.dump(queue) == before
    assert queue.reserve().id == "b"


def test_a_repeated_reserve_of_none_stays_none(lab: Lab) -> None:
    queue = lab.queue()
    assert queue.reserve(request="r1") is None
    queue.enqueue("a")

    assert queue.reserve(request="r1") is None
    assert queue.reserve().id == "a"


def test_a_repeated_reserve_of_many_hands_out_what_is_still_held(lab: Lab) -> None:
    queue = lab.queue()
    for id in "abcde":
        queue.enqueue(id)
    first = queue.execute([operations.reserve()] * 3, request="r1")
    assert [outcome.job.id for outcome in first] == ["a", "b", "c"]
    queue.cancel("b")
    queue.retry("c", 1)

    again = queue.execute([operations.reserve()] * 3, request="r1")

    assert [(o.reason, o.job and o.job.id) for o in again] == [
        (Reason.DONE, "a"),
        (Reason.CANCELLED, None),
        (Reason.CANCELLED, None),
    ]
    assert [queue.reserve().id for _ in range(3)] == ["d", "e", "c"]


def test_lanes_unused_for_an_hour_are_dropped_as_new_ones_come(lab: Lab) -> None:
    queue = lab.queue()
    key = lab.key(queue, "receipts")
    lab.raw.hset(key, mapping={f"old{i}": "1 1000000000000 f ok" for i in range(200)})

    for i in range(300):
        queue.enqueue(f"j{i}", request=f"r{i}")

    lanes = [lane.decode() for lane in lab.raw.hkeys(key)]
    assert sum(lane.startswith("old") for lane in lanes) < 20
    assert sum(lane.startswith("r") for lane in lanes) == 300


def test_the_first_sending_of_a_call_does_not_run_behind_its_refused_resend(
    backend: Backend,
) -> None:
    with backend.client() as raw, Queue(capacity=1, redis=raw) as queue:
        other = Queue(queue.name, redis=raw)
        other.enqueue("a")
        plan = Plan([operations.enqueue("b")], queue._definition.keys, TEXT)
        delivery = Delivery(queue.name, plan.calls, queue.client.lanes)
        stalled = delivery.commands()[0]
        delivery.trouble(ConnectionError("cut"), sent=True, patient=True)
        queue.client.deliver(delivery)
        assert [o.reason for o in plan.outcomes(delivery)] == ["full"]
        other.cancel("a")

        late = raw.execute_command(*stalled)

        assert [word.split()[0] for word in late] == [b"full"]
        assert other.enqueue("c") is True
        other.close()
        raw.delete(*queue._definition.keys)


def test_a_reserve_that_comes_late_takes_nothing(backend: Backend) -> None:
    with backend.client() as raw, Queue(redis=raw) as queue:
        other = Queue(queue.name, redis=raw)
        for waiting in (False, True):
            plan = Plan([operations.reserve()], queue._definition.keys, TEXT)
            delivery = Delivery(queue.name, plan.calls, queue.client.lanes)
            stalled = delivery.commands()[0]
            if waiting:
                other.enqueue("a")
            delivery.trouble(ConnectionError("cut"), sent=True, patient=True)
            queue.client.deliver(delivery)
            assert [bool(o) for o in plan.outcomes(delivery)] == [waiting]
            if waiting:
                assert other.ack("a", 1) is True
            other.enqueue(f"b{waiting}")

            assert raw.execute_command(*stalled)[0] == 0

            assert other.reserve().id == f"b{waiting}"
        other.close()
        raw.delete(*queue._definition.keys)
