"""release: an unstarted job goes back to the head of waiting, as if it had not been taken."""

import itertools
from typing import Any

import pytest
from support import Lab, taken

from durableq import Job, Outcome, Reason, operations


def reserved(lab: Lab, *ids: str, **settings: Any) -> Any:
    queue = lab.queue(**settings)
    queue.execute([operations.enqueue(id) for id in ids])
    assert all(queue.execute([operations.reserve()] * len(ids)))
    return queue


def test_a_released_job_is_the_next_one_with_its_next_attempt(lab: Lab) -> None:
    queue = reserved(lab, "a")
    queue.execute([operations.enqueue(id) for id in "bc"])

    assert queue.release("a", 1) is True
    assert queue.release("a", 1) is False

    assert queue.reserve() == Job("a", "", 2)
    assert taken(queue) == ["b", "c"]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_several_come_back_in_the_order_of_reservation_whoever_releases_first(
    lab: Lab, together: bool
) -> None:
    ids = list("dcab")  # not in the order of their names
    for order in itertools.permutations(ids):
        queue = reserved(lab, *ids)
        queue.enqueue("later")

        if together:
            assert all(queue.execute([operations.release(id, 1) for id in order]))
        else:
            assert all(queue.release(id, 1) for id in order)

        assert taken(queue) == [*ids, "later"]


def test_more_than_nine_come_back_in_their_order(lab: Lab) -> None:
    ids = [f"j{number}" for number in range(120)]
    queue = reserved(lab, *ids)

    assert all(queue.execute([operations.release(id, 1) for id in reversed(ids)]))

    assert taken(queue) == ids


def test_released_jobs_go_before_retried_returned_and_new_ones(lab: Lab) -> None:
    queue = reserved(lab, *"abcd", lease=3600)
    queue.enqueue("e")
    queue.retry("a", 1)
    key = lab.key(queue, "leases")
    lab.raw.zadd(key, {m: 1 for m in lab.raw.zrange(key, 0, -1) if m.endswith(b"b")})
    assert queue.reap().returned == ("b",)
    queue.release("d", 1)
    queue.enqueue("f")
    queue.release("c", 1)

    assert taken(queue) == ["c", "d", "e", "a", "b", "f"]


def test_a_job_released_again_is_still_the_next(lab: Lab) -> None:
    queue = reserved(lab, "a")
    queue.enqueue("b")

    for attempt in range(1, 30):
        assert queue.release("a", attempt) is True
        assert queue.reserve() == Job("a", "", attempt + 1)

    assert taken(queue) == ["b"]


def test_it_uses_up_an_attempt_number_and_none_of_the_budget(lab: Lab) -> None:
    queue = lab.queue(max_attempts=2)
    queue.enqueue("a")

    for attempt in (1, 2, 3):
        assert queue.reserve().attempt == attempt
        assert queue.execute(operations.release("a", attempt)) == Outcome(Reason.DONE)
    queue.reserve()
    assert queue.execute(operations.retry("a", 4)) == Outcome(Reason.DONE)
    queue.reserve()
    queue.release("a", 5)
    queue.reserve()
    assert queue.execute(operations.retry("a", 6)).failed

    (failed,) = queue.failed()
    assert (failed.attempt, failed.spent, failed.deaths, failed.limit) == (6, 2, 0, 2)


def test_nobody_holds_a_released_job(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    queue.enqueue("a", "A")
    old = queue.reserve(worker="w")
    queue.retry("a", 1, error="before")
    old = queue.reserve(worker="w")
    assert queue.release("a", 2) is True

    left = lab.dump(queue)
    assert "leases" not in left
    assert b" w" not in left["jobs"][b"a"]
    assert old.token.encode() not in left["jobs"][b"a"]
    assert left["payloads"] == {b"a": b"A"}
    assert left["errors"] == {b"a": b"before"}, "its last error is still the last one"
    assert queue.wait_for("a", 0) is Reason.WAITING
    assert queue.reap() == Outcome(Reason.EMPTY)
    assert queue.ack("a", 2) is False
    assert queue.reserve() == Job("a", "A", 3)
    assert queue.ack("a", 2, token=old.token) is False


def test_a_released_job_keeps_its_room(lab: Lab) -> None:
    queue = reserved(lab, "a", capacity=1)
    assert queue.enqueue("b") is False

    queue.release("a", 1)

    outcome = queue.execute(operations.enqueue("b"))
    assert outcome.reason is Reason.FULL
    assert (outcome.occupancy.waiting, outcome.occupancy.in_flight) == (1, 0)
    queue.reserve()
    queue.ack("a", 2)
    assert queue.enqueue("b") is True


def test_its_id_is_that_of_an_active_job(lab: Lab) -> None:
    queue = reserved(lab, "a")
    queue.release("a", 1)

    outcome = queue.execute(operations.enqueue("a"))

    assert (outcome.reason, outcome.same_payload) == (Reason.DUPLICATE, True)
    assert taken(queue) == ["a"]


def test_a_released_job_can_be_cancelled(lab: Lab) -> None:
    queue = reserved(lab, *"abc", capacity=3)
    for id in "abc":
        queue.release(id, 1)

    assert queue.cancel("b") is True
    assert queue.cancel("b") is False

    assert queue.enqueue("d") is True, "its room is free"
    assert queue.enqueue("b") is False, "and its id is not"
    assert taken(queue) == ["a", "c", "d"]
    for id, attempt in (("a", 2), ("c", 2), ("d", 1)):
        assert queue.ack(id, attempt) is True
    left = lab.dump(queue)
    assert left.keys() - {"room", "promised"} == {
        "meta",
        "retired",
        "cancelled",
        "receipts",
        "bell",
    }
    assert left["cancelled"] == {b"b"}


def test_the_order_of_the_others_is_kept_past_cancelled_ones(lab: Lab) -> None:
    queue = reserved(lab, *"ab")
    queue.execute([operations.enqueue(id) for id in "cde"])
    queue.cancel("c")
    queue.release("b", 1)
    queue.cancel("d")
    queue.release("a", 1)

    assert taken(queue) == ["a", "b", "e"]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("stale", Reason.STALE),
        ("claimed by another token", Reason.STALE),
        ("waiting", Reason.WAITING),
        ("released", Reason.WAITING),
        ("finished", Reason.FINISHED),
        ("cancelled", Reason.CANCELLED),
        ("failed", Reason.FAILED),
        ("purged", Reason.PURGED),
        ("unknown", Reason.UNKNOWN),
    ],
)
def test_who_does_not_hold_the_job_is_refused_like_a_retry(
    lab: Lab, state: str, reason: Reason
) -> None:
    queue = reserved(lab, "a")
    match state:
        case "stale":
            queue.retry("a", 1)
            queue.reserve()
        case "waiting":
            queue.retry("a", 1)
        case "released":
            queue.release("a", 1)
        case "finished":
            queue.ack("a", 1)
        case "cancelled":
            queue.cancel("a")
        case "failed":
            queue.fail("a", 1)
        case "purged":
            queue.fail("a", 1)
            queue.purge_failed()
        case _:
            pass
    id = "nobody" if state == "unknown" else "a"
    token = "another" if state == "claimed by another token" else None
    before = lab.dump(queue)

    assert queue.release(id, 1, token=token) is False
    outcome = queue.execute(operations.release(id, 1, token=token))
    assert outcome == queue.execute(operations.retry(id, 1, token=token))
    assert outcome.reason is reason
    assert outcome.attempt == {"stale": 2, "claimed by another token": 1}.get(state)

    assert lab.dump(queue) == before


def test_twice_in_a_list_is_once(lab: Lab) -> None:
    queue = reserved(lab, *"ab")

    outcomes = queue.execute([operations.release(id, 1) for id in "abab"])

    assert [outcome.reason for outcome in outcomes] == ["done", "done", "waiting", "waiting"]
    assert taken(queue) == ["a", "b"]


@pytest.mark.parametrize(("id", "attempt"), [(1, 1), (b"a", 1), ("a", "1"), ("a", True)])
def test_arguments_of_the_wrong_type_are_type_errors(lab: Lab, id: Any, attempt: Any) -> None:
    queue = reserved(lab, "a")
    before = lab.dump(queue)

    with pytest.raises(TypeError):
        queue.release(id, attempt)

    assert lab.dump(queue) == before
