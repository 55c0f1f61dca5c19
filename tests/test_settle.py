"""ack and retry share who may call them, and so these tests; then what each of them does."""

from typing import Any

import pytest
from support import Lab

from durableq import Job, Reason, operations

BOTH = pytest.mark.parametrize("verb", ["ack", "retry"])
WRONG = [0, -1, 2, 3, 10**18, -(10**18), 10**5000, 2**53 + 1]


def outcome(queue: Any, verb: str, *args: Any, **kwargs: Any) -> Any:
    return queue.execute(getattr(operations, verb)(*args, **kwargs))


@BOTH
@pytest.mark.parametrize("attempt", WRONG, ids=lambda n: f"{n:.0e}" if n < 2**60 else "huge")
def test_any_other_attempt_is_stale_and_changes_nothing(lab: Lab, verb: str, attempt: int) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    before = lab.dump(queue)

    assert getattr(queue, verb)("a", attempt) is False
    assert outcome(queue, verb, "a", attempt).reason is Reason.STALE
    assert outcome(queue, verb, "a", attempt).attempt == 1

    assert lab.dump(queue) == before
    assert getattr(queue, verb)("a", 1) is True


@BOTH
def test_the_attempt_before_is_stale(lab: Lab, verb: str) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    queue.retry("a", 1)
    queue.reserve()

    assert getattr(queue, verb)("a", 1) is False
    assert getattr(queue, verb)("a", 2) is True


@BOTH
@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_a_waiting_job_is_nobodys(lab: Lab, verb: str, attempt: int) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    queue.retry("a", 1)
    before = lab.dump(queue)

    assert getattr(queue, verb)("a", attempt) is False
    assert outcome(queue, verb, "a", attempt).reason is Reason.WAITING

    assert lab.dump(queue) == before


@BOTH
@pytest.mark.parametrize(
    ("end", "reason"), [("ack", Reason.FINISHED), ("cancel", Reason.CANCELLED)]
)
def test_a_finished_job_is_nobodys(lab: Lab, verb: str, end: str, reason: Reason) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    if end == "ack":
        queue.ack("a", 1)
    else:
        queue.cancel("a")
    before = lab.dump(queue)

    assert getattr(queue, verb)("a", 1) is False
    assert outcome(queue, verb, "a", 1).reason is reason

    assert lab.dump(queue) == before


@BOTH
def test_an_unknown_id_is_nobodys(lab: Lab, verb: str) -> None:
    queue = lab.queue()
    before = lab.dump(queue)

    assert getattr(queue, verb)("a", 1) is False
    assert outcome(queue, verb, "a", 1).reason is Reason.UNKNOWN

    assert lab.dump(queue) == before


@BOTH
def test_a_claim_token_must_match_if_given(lab: Lab, verb: str) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    job = queue.reserve()

    for token in ("", "other", "x" * 10_000, "\ud800"):
        assert getattr(queue, verb)("a", 1, token=token) is False
        assert outcome(queue, verb, "a", 1, token=token).reason is Reason.STALE
    assert getattr(queue, verb)("a", 1, token=job.token) is True


@BOTH
@pytest.mark.parametrize("attempt", ["1", 1.0, True, None, b"1", [1]])
def test_an_attempt_of_the_wrong_type_is_a_type_error(lab: Lab, verb: str, attempt: object) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    before = lab.dump(queue)

    with pytest.raises(TypeError, match="attempt is an int"):
        getattr(queue, verb)("a", attempt)

    assert lab.dump(queue) == before


def test_ack_leaves_nothing_but_the_retired_id(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a", "A")
    queue.reserve()
    queue.retry("a", 1, error="broken")
    queue.reserve()

    assert queue.ack("a", 2) is True
    assert queue.ack("a", 2) is False

    left = lab.dump(queue)
    assert left.keys() == {"meta", "retired", "receipts", "bell"}
    assert left["retired"] == {b"a"}


def test_retry_goes_to_the_waiting_tail(lab: Lab) -> None:
    queue = lab.queue()
    for id in "abc":
        queue.enqueue(id, id)
    queue.reserve()

    assert queue.retry("a", 1) is True
    assert queue.retry("a", 1) is False

    assert [queue.reserve() for _ in range(4)] == [
        Job("b", "b", 1),
        Job("c", "c", 1),
        Job("a", "a", 2),
        None,
    ]


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        ("broken", "broken"),
        ("x" * 5000, "x" * 4096),
        ("ä" * 4096, "ä" * 2048),
        ("x" + "€" * 4096, "x" + "€" * 1365),
        ("bad \ud800 text", "bad \\ud800 text"),
        ("nul \0", "nul \0"),
    ],
)
def test_retry_keeps_the_error_up_to_4_kib_of_whole_characters(
    lab: Lab, error: str, kept: str
) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()

    assert queue.retry("a", 1, error=error) is True

    assert lab.dump(queue)["errors"] == {b"a": kept.encode()}


def test_a_retry_without_an_error_leaves_the_last_one(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a")
    queue.reserve()
    queue.retry("a", 1, error="first")
    queue.reserve()

    queue.retry("a", 2)

    assert lab.dump(queue)["errors"] == {b"a": b"first"}


def test_an_error_of_the_wrong_type_is_a_type_error(lab: Lab) -> None:
    queue = lab.queue()

    with pytest.raises(TypeError, match="error text is a str"):
        queue.retry("a", 1, error=ValueError("no"))
