import pytest
from support import Lab

from durableq import InvalidName, InvalidPayload, Occupancy, Reason, arguments, operations


def test_a_new_id_is_accepted_at_the_tail(lab: Lab) -> None:
    queue = lab.queue()

    assert queue.enqueue("a", "A") is True
    assert queue.enqueue("b", "B") is True

    assert [queue.reserve().id for _ in range(2)] == ["a", "b"]


def test_a_payload_may_be_left_out(lab: Lab) -> None:
    queue = lab.queue()

    assert queue.enqueue("a") is True

    assert queue.reserve().payload == ""


@pytest.mark.parametrize("state", ["waiting", "in flight", "retried"])
def test_an_active_id_is_refused(lab: Lab, state: str) -> None:
    queue = lab.queue()
    queue.enqueue("a", "A")
    if state != "waiting":
        queue.reserve()
    if state == "retried":
        queue.retry("a", 1)
    before = lab.dump(queue)

    assert queue.enqueue("a", "other") is False

    assert lab.dump(queue) == before


def test_a_retired_id_stays_refused_for_the_lifetime_of_the_queue(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("done")
    queue.ack("done", queue.reserve().attempt)
    queue.enqueue("gone")
    queue.cancel("gone")
    before = lab.dump(queue)

    assert queue.enqueue("done") is False
    assert queue.enqueue("gone") is False
    assert queue.execute(operations.enqueue("done")).reason is Reason.FINISHED
    assert queue.execute(operations.enqueue("gone")).reason is Reason.CANCELLED

    assert lab.dump(queue) == before


def test_a_full_queue_refuses_and_reserves_nothing(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("a")
    before = lab.dump(queue)

    assert queue.enqueue("b") is False

    assert lab.dump(queue) == before
    queue.cancel("a")
    assert queue.enqueue("b") is True


def test_reserving_frees_no_room_but_ack_and_cancel_do(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("a")
    queue.reserve()
    assert queue.enqueue("b") is False

    queue.ack("a", 1)
    assert queue.enqueue("b") is True
    queue.cancel("b")
    assert queue.enqueue("c") is True


def test_retry_keeps_the_room(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("a")
    queue.reserve()
    queue.retry("a", 1)

    assert queue.enqueue("b") is False


def test_capacity_zero_refuses_everything(lab: Lab) -> None:
    queue = lab.queue(capacity=0)

    assert queue.enqueue("a") is False
    assert queue.execute(operations.enqueue("a")).reason is Reason.FULL


def test_the_outcome_says_what_fills_the_queue(lab: Lab) -> None:
    queue = lab.queue(capacity=3)
    queue.execute([operations.enqueue(id) for id in "abc"])
    queue.reserve()

    outcome = queue.execute(operations.enqueue("d"))

    assert outcome.occupancy == Occupancy(waiting=2, delayed=0, in_flight=1, capacity=3)


@pytest.mark.parametrize(("payload", "same"), [("A", True), ("B", False), ("", False)])
def test_the_outcome_of_a_duplicate_compares_the_payloads(
    lab: Lab, payload: str, same: bool
) -> None:
    queue = lab.queue()
    queue.enqueue("a", "A")

    outcome = queue.execute(operations.enqueue("a", payload))

    assert (outcome.reason, outcome.same_payload) == (Reason.DUPLICATE, same)
    assert not outcome


def test_a_duplicate_in_a_full_queue_is_called_a_duplicate(lab: Lab) -> None:
    queue = lab.queue(capacity=1)
    queue.enqueue("a")

    assert queue.execute(operations.enqueue("a")).reason is Reason.DUPLICATE


def test_ids_are_case_sensitive(lab: Lab) -> None:
    queue = lab.queue()

    assert queue.enqueue("a", "lower") is True
    assert queue.enqueue("A", "upper") is True

    assert queue.cancel("a") is True
    assert queue.reserve().payload == "upper"


GOOD = ["0", "00123", "-1", "1e5", "a:b", "A/b@c+d=e~f.g_h-i", "x" * 128, "inf", "nil", "."]
BAD = ["", " ", "a b", "a\n", "a\0", "{a}", "ä", "x" * 129, "a,b", '"', "%", "\ud800", "\u0661"]


@pytest.mark.parametrize("id", GOOD)
def test_an_id_within_the_rule_goes_all_the_way(lab: Lab, id: str) -> None:
    queue = lab.queue()

    assert queue.enqueue(id, "p") is True
    assert queue.enqueue(id, "p") is False
    job = queue.reserve()
    assert (job.id, job.payload, job.attempt) == (id, "p", 1)
    assert queue.retry(id, 1, error="e") is True
    assert queue.reserve().attempt == 2
    assert queue.ack(id, 2) is True
    assert queue.enqueue(id, "p") is False
    assert queue.cancel(id) is False


@pytest.mark.parametrize("id", [*BAD, "y" * 10_000])
def test_an_id_outside_the_rule_is_refused_with_the_rule(lab: Lab, id: str) -> None:
    queue = lab.queue()
    before = lab.dump(queue)

    with pytest.raises(InvalidName, match="1 to 128 characters of A-Z a-z 0-9 _ - ") as caught:
        queue.enqueue(id)

    assert repr(id)[:20] in str(caught.value)
    assert lab.dump(queue) == before
    # Elsewhere it is merely an id that no job has.
    assert queue.ack(id, 1) is False
    assert queue.retry(id, 1) is False
    assert queue.cancel(id) is False
    assert queue.execute(operations.cancel(id)).reason is Reason.UNKNOWN
    assert lab.dump(queue) == before


@pytest.mark.parametrize("id", [None, 1, 1.0, b"a", ["a"], True])
def test_an_id_of_the_wrong_type_is_a_type_error(lab: Lab, id: object) -> None:
    queue = lab.queue()

    for call in (queue.enqueue, queue.cancel):
        with pytest.raises(TypeError, match="job id is a str"):
            call(id)
    for call in (queue.ack, queue.retry):
        with pytest.raises(TypeError, match="job id is a str"):
            call(id, 1)


def test_a_payload_up_to_the_limit_is_kept_and_one_over_it_is_refused(lab: Lab) -> None:
    queue = lab.queue()
    largest = "x" * arguments.MAX_PAYLOAD

    assert queue.enqueue("a", largest) is True
    before = lab.dump(queue)
    with pytest.raises(InvalidPayload, match="1048577 bytes"):
        queue.enqueue("b", largest + "x")
    with pytest.raises(InvalidPayload, match="1048578 bytes"):
        queue.enqueue("b", "ä" * (arguments.MAX_PAYLOAD // 2 + 1))

    assert lab.dump(queue) == before
    assert queue.reserve().payload == largest


def test_the_script_itself_refuses_a_payload_over_the_limit(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = lab.queue()
    before = lab.dump(queue)
    limit = arguments.MAX_PAYLOAD
    monkeypatch.setattr(arguments, "MAX_PAYLOAD", 2 * limit)

    with pytest.raises(InvalidPayload, match="1048577 bytes"):
        queue.execute([operations.enqueue("a", "x"), operations.enqueue("b", "x" * (limit + 1))])

    assert lab.dump(queue) == before
