"""Many at once: as if one after another, in whole chunks, and an error says how far it got."""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from model import observed
from support import Lab, taken

from durableq import (
    JSON,
    TEXT,
    DecodeError,
    InvalidArgument,
    InvalidName,
    InvalidPayload,
    Job,
    Outcome,
    QueueNotFound,
    Reason,
    batches,
    operations,
)
from durableq.arguments import MAX_PAYLOAD
from durableq.operations import MAX_BATCH, MOST_RESERVED

CHUNKS = MAX_BATCH * batches.TOGETHER
"""Items that are sent together."""


def numbered(number: int, start: int = 0) -> list[tuple[str, str]]:
    return [(f"job-{i:06}", f"of {i}") for i in range(start, start + number)]


def ids(jobs: Iterable[Any]) -> list[str]:
    return [job.id for job in jobs]


# As if one after another


IDS = [f"j{number}" for number in range(12)]
VERBS = ["enqueue", "ack", "retry", "extend", "cancel", "reserve", "exchange"]


def many(queue: Any, verb: str, items: list[Any]) -> list[Any]:
    if verb == "enqueue":
        return queue.enqueue_many(items)
    if verb == "reserve":
        return queue.reserve_many(len(items))
    if verb == "extend":
        return queue.extend_many(items, 60)
    if verb == "exchange":
        done = [operations.ack(*item) for item in items[:2]] + [
            operations.retry(*item, error="again") for item in items[2:]
        ]
        turn = queue.exchange(done, 2)
        return [*map(bool, turn.settled), *turn.jobs]
    return getattr(queue, f"{verb}_many")(items)


def one_by_one(queue: Any, verb: str, items: list[Any]) -> list[Any]:
    if verb == "enqueue":
        return [queue.enqueue(*item) for item in items]
    if verb == "reserve":
        return [job for _ in items if (job := queue.reserve())]
    if verb == "extend":
        return [queue.extend(*item, 60) for item in items]
    if verb == "exchange":
        done = [queue.ack(*item) for item in items[:2]]
        done += [queue.retry(*item, error="again") for item in items[2:]]
        return done + [job for _ in range(2) if (job := queue.reserve())]
    if verb == "cancel":
        return [queue.cancel(item) for item in items]
    return [getattr(queue, verb)(*item) for item in items]


def told(answers: list[Any]) -> list[Any]:
    """Without the claim tokens, which are the call's own."""
    return [(it.id, it.payload, it.attempt) if isinstance(it, Job) else it for it in answers]


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_is_as_its_items_one_after_another(lab: Lab, seed: int) -> None:
    chance = random.Random(seed)
    settings = {"capacity": chance.choice([None, 3, 8]), "max_attempts": chance.choice([None, 2])}
    whole, single = lab.queue(**settings), lab.queue(**settings)
    for _ in range(60):
        verb = chance.choice(VERBS)
        names = chance.choices(IDS, k=chance.randint(1, 8))
        items: list[Any] = [(name, chance.randint(1, 3)) for name in names]
        if verb == "enqueue":
            items = [(name, f"{name} {chance.randint(0, 1)}") for name in names]
        elif verb == "cancel":
            items = names[:2]

        assert told(many(whole, verb, items)) == told(one_by_one(single, verb, items))

        assert observed(lab.dump(whole)) == observed(lab.dump(single))
        if chance.random() < 0.1:
            whole, single = lab.queue(**settings), lab.queue(**settings)


@pytest.mark.parametrize(
    "number", [0, 1, MAX_BATCH, MAX_BATCH + 1, pytest.param(CHUNKS + 1, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", [list, iter])
def test_any_number_of_items(lab: Lab, number: int, kind: Callable[..., Any]) -> None:
    queue, jobs = lab.queue(), numbered(number)

    assert queue.enqueue_many(kind(jobs)) == [True] * number
    assert queue.enqueue_many(kind(jobs)) == [False] * number
    got = queue.reserve_many(number + 5)
    assert [(job.id, job.payload, job.attempt) for job in got] == [(*job, 1) for job in jobs]
    assert queue.extend_many(kind(got), 60) == [True] * number
    assert queue.retry_many(kind(got)) == [True] * number
    again = queue.reserve_many(number)
    assert ids(again) == ids(got)
    assert queue.ack_many(kind(got)) == [False] * number
    assert queue.ack_many(kind([(job.id, job.attempt) for job in again])) == [True] * number
    assert queue.enqueue_many(kind(numbered(number, number))) == [True] * number
    assert queue.cancel_many(kind([id for id, _ in numbered(number, number)])) == [True] * number
    assert queue.counts().retired == 2 * number


def test_a_job_may_be_richer_than_its_payload(lab: Lab) -> None:
    queue = lab.queue()

    told = queue.enqueue_many(
        [
            ("low", "p"),
            ["usual", "p"],
            operations.enqueue("high", "q", priority=9),
            operations.enqueue("later", delay=3600),
        ],
        priority=-1,
        max_attempts=3,
    )

    assert told == [True] * 4
    assert [(job.id, job.payload) for job in queue.reserve_many(9)] == [
        ("high", "q"),
        ("low", "p"),
        ("usual", "p"),
    ]
    assert (queue.get("low").priority, queue.get("low").limit) == (-1, 3)
    assert queue.get("later").state is Reason.DELAYED


def test_retry_many_keeps_the_order_the_error_and_the_delay(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue_many(numbered(4))
    jobs = queue.reserve_many(4)

    assert queue.retry_many(jobs[:2][::-1], error="broken") == [True] * 2
    assert queue.retry_many(jobs[2:], delay=3600) == [True] * 2

    assert queue.get(jobs[0].id).error == "broken"
    assert queue.counts().delayed == 2
    assert taken(queue) == [jobs[1].id, jobs[0].id]


# Reserving many


def test_reserve_many_hands_out_what_there_is(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue_many(numbered(MOST_RESERVED + 20))

    assert queue.reserve_many(0) == []
    jobs = queue.reserve_many(MOST_RESERVED + 7, lease=60, worker="w", max_attempts=3)

    assert ids(jobs) == ids([Job(id, "", 1) for id, _ in numbered(MOST_RESERVED + 7)])
    view = queue.get(jobs[-1].id)
    assert (view.worker, view.limit) == ("w", 3)
    assert view.lease_ends_at is not None
    assert len(queue.reserve_many(10**9)) == 13
    assert queue.reserve_many(5) == []


def test_large_payloads_come_in_several_steps_or_are_told_to_wait(lab: Lab) -> None:
    queue, large = lab.queue(), "x" * MAX_PAYLOAD
    queue.enqueue_many([(id, large) for id, _ in numbered(40)])

    turn = queue.exchange([], 40)
    assert 4 <= len(turn.jobs) < 40
    assert turn.reserved[-1].reason is Reason.EMPTY
    assert turn.reserved[-1].more
    rest = queue.reserve_many(40)

    assert ids([*turn.jobs, *rest]) == [id for id, _ in numbered(40)]
    assert all(job.payload == large for job in rest)


def test_reserve_many_waits_for_the_first(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue("a", delay=0.2)
    queue.enqueue("b", delay=0.2)

    assert sorted(ids(queue.reserve_many(5, wait=20)))[:1] == ["a"]
    assert queue.reserve_many(5, wait=0.01) in ([], [Job("b", "", 1)])


@pytest.mark.parametrize("count", [-1, True, "1", 1.0, None, 2**53 + 1])
def test_a_bad_number_is_refused_before_anything_is_sent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, count: Any
) -> None:
    queue = lab.queue()
    monkeypatch.setattr(queue.client, "deliver", lambda *_: pytest.fail("it sent"))

    for call in (lambda: queue.reserve_many(count), lambda: queue.exchange([], count)):
        error = InvalidArgument if type(count) is int else TypeError
        with pytest.raises(error):
            call()


def test_what_cannot_be_decoded_is_told_with_all_that_is_in_flight(lab: Lab) -> None:
    text = lab.queue("codecs", codec=TEXT)
    text.enqueue_many([("a", "1"), ("b", "not json"), ("c", "2")])
    lab.raw.hset(lab.key(text, "meta"), "codec", "json")
    queue = lab.queue("codecs", codec=JSON)

    with pytest.raises(DecodeError) as caught:
        queue.reserve_many(3)

    assert caught.value.id == "b"
    held = [outcome.job or outcome.error for outcome in caught.value.outcomes]
    assert ids(held) == ["a", "b", "c"]
    assert queue.counts().in_flight == 3
    turn = queue.exchange([operations.release(job.id, job.attempt) for job in held], 3)
    assert ids(turn.jobs) == ["a", "c"]
    assert isinstance(turn.reserved[1].error, DecodeError)


# A turn


def test_a_turn_settles_and_reserves(lab: Lab) -> None:
    queue = lab.queue(max_attempts=1)
    queue.enqueue_many(numbered(9))
    first = queue.exchange([], 4)
    assert first.settled == []
    one, two, three, four = first.jobs

    turn = queue.exchange(
        [one, operations.retry(two.id, two.attempt), three, one, operations.release(four.id, 1)], 2
    )

    assert [outcome.reason for outcome in turn.settled] == [
        Reason.DONE,
        Reason.DONE,
        Reason.DONE,
        Reason.FINISHED,
        Reason.DONE,
    ]
    assert [failure.id for failure in turn.settled[1].failed] == [two.id]
    assert ids(turn.jobs) == [four.id, "job-000004"]
    assert queue.exchange(turn.jobs, 0).reserved == []
    last = queue.exchange([], 50)
    assert len(last.jobs) == 4
    assert last.reserved[-1] == Outcome(Reason.EMPTY)
    assert last.reserved[0].job == last.jobs[0]


def test_a_turn_is_one_round_trip(real_lab: Lab) -> None:
    queue = real_lab.queue()
    queue.enqueue_many(numbered(200))
    jobs = queue.exchange([], 100).jobs
    turns = list[int]()
    deliver = queue.client.deliver

    def counted(delivery: Any) -> Any:
        commands = delivery.commands

        def once() -> Any:
            turns.append(1)
            return commands()

        delivery.commands = once
        return deliver(delivery)

    queue.client.deliver = counted
    done: list[Any] = [*jobs[:50], *(operations.retry(job.id, job.attempt) for job in jobs[50:])]

    assert len(queue.exchange(done, 100).jobs) == 100

    assert len(turns) == 1


def test_a_turn_reserves_what_want_says_alone(lab: Lab) -> None:
    queue = lab.queue()

    with pytest.raises(TypeError, match="want="):
        queue.exchange([operations.reserve()], 1)


# Errors in the middle


BAD: list[tuple[Any, type[Exception]]] = [
    (("bad id", ""), InvalidName),
    (("a", "x" * (MAX_PAYLOAD + 1)), InvalidPayload),
    (("a", 1), TypeError),
    ("ab", TypeError),
    (("a", "p", 1), TypeError),
    ({"id": "a"}, TypeError),
    (operations.cancel("a"), TypeError),
]


@pytest.mark.parametrize(("item", "error"), BAD, ids=lambda value: str(value)[:20])
def test_a_list_is_checked_whole_before_anything_is_sent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, item: Any, error: type[Exception]
) -> None:
    queue, place = lab.queue(), CHUNKS + 3
    monkeypatch.setattr(queue.client, "deliver", lambda *_: pytest.fail("it sent"))

    with pytest.raises(error) as caught:
        queue.enqueue_many([*numbered(place), item])

    assert f"item {place} " in str(caught.value.__notes__)


@pytest.mark.parametrize(("item", "error"), BAD[:2], ids=lambda value: str(value)[:20])
def test_an_iterator_is_checked_before_its_next_chunks_are_sent(
    lab: Lab, item: Any, error: type[Exception]
) -> None:
    queue = lab.queue()

    with pytest.raises(error) as caught:
        queue.enqueue_many(iter([*numbered(CHUNKS + 3), item]))

    assert len(caught.value.outcomes) == CHUNKS
    assert f"{CHUNKS} items" in str(caught.value.__notes__)
    assert queue.counts().waiting == CHUNKS


@pytest.mark.parametrize(
    ("verb", "item"),
    [("ack", "a"), ("ack", ("a", "1")), ("retry", (1, 1)), ("extend", None), ("cancel", 7)],
    ids=str,
)
def test_a_bad_claim_is_refused_before_anything_is_sent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, verb: str, item: Any
) -> None:
    queue = lab.queue()
    monkeypatch.setattr(queue.client, "deliver", lambda *_: pytest.fail("it sent"))

    with pytest.raises(TypeError) as caught:
        getattr(queue, f"{verb}_many")([item])

    assert "item 0 " in str(caught.value.__notes__)


def test_one_id_is_no_list_of_ids(lab: Lab) -> None:
    with pytest.raises(TypeError, match="use cancel"):
        lab.queue().cancel_many("abc")


def test_progress_is_told_after_each_few_chunks(lab: Lab) -> None:
    queue, heard = lab.queue(), list[int]()

    queue.enqueue_many(numbered(CHUNKS + 10), progress=heard.append)

    assert heard == [CHUNKS, CHUNKS + 10]


class Mine(BaseException):
    """What a user's signal handler raises."""


def test_an_interruption_leaves_whole_chunks_and_says_how_far_it_got(lab: Lab) -> None:
    queue = lab.queue()

    def interrupt(done: int) -> None:
        raise Mine

    with pytest.raises(Mine) as caught:
        queue.enqueue_many(numbered(2 * CHUNKS), progress=interrupt)

    assert f"{CHUNKS} items" in str(caught.value.__notes__)
    assert queue.counts().waiting == CHUNKS
    assert sum(queue.enqueue_many(numbered(2 * CHUNKS))) == CHUNKS


def test_an_error_of_the_server_says_how_far_it_got(lab: Lab) -> None:
    queue = lab.queue()

    def jobs() -> Iterator[tuple[str, str]]:
        yield from numbered(CHUNKS + 1)
        lab.raw.delete(*queue._definition.keys)
        yield ("late", "")

    with pytest.raises(QueueNotFound) as caught:
        queue.enqueue_many(jobs())

    assert len(caught.value.outcomes) == CHUNKS
    assert all(caught.value.outcomes)


# Requests


@pytest.mark.parametrize("number", [3, MAX_BATCH + 3, CHUNKS + 3])
def test_repeated_with_its_request_a_batch_has_one_effect_and_its_answer(
    lab: Lab, number: int
) -> None:
    queue, jobs = lab.queue(), numbered(number)
    mixed = [*jobs[:-1], jobs[0]]

    first = queue.enqueue_many(mixed, request="mine")

    assert first == [True] * (number - 1) + [False]
    before = lab.dump(queue)
    assert queue.enqueue_many(mixed, request="mine") == first
    assert queue.enqueue_many(iter(mixed), request="mine") == first
    assert lab.dump(queue)["jobs"] == before["jobs"]
    held = queue.reserve_many(number)
    assert queue.ack_many(held, request="acks") == [True] * (number - 1)
    assert queue.ack_many(held, request="acks") == [True] * (number - 1)
    assert queue.ack_many(held) == [False] * (number - 1)


def test_repeated_with_its_request_a_turn_has_its_jobs(lab: Lab) -> None:
    queue = lab.queue()
    queue.enqueue_many(numbered(6))
    jobs = queue.reserve_many(2, request="first")
    assert queue.reserve_many(2, request="first") == jobs

    turn = queue.exchange(jobs, 2, request="turn")

    assert all(turn.settled)
    assert queue.exchange(jobs, 2, request="turn") == turn
    assert queue.counts().in_flight == 2


def test_the_room_of_a_batch_is_free_at_once(lab: Lab) -> None:
    queue = lab.queue(capacity=4)
    queue.enqueue_many(numbered(4))
    jobs = queue.reserve_many(4)

    assert queue.enqueue_many(numbered(2, 10)) == [False] * 2
    assert queue.exchange(jobs, 1).reserved[0].reason is Reason.EMPTY
    assert queue.enqueue_many(numbered(6, 20)) == [True] * 4 + [False] * 2


@pytest.mark.slow
def test_three_hundred_thousand_items(real_lab: Lab) -> None:
    queue, number = real_lab.queue(), 300_000

    assert sum(queue.enqueue_many(job for job in numbered(number))) == number
    jobs = queue.reserve_many(number)
    assert len(jobs) == number
    assert sum(queue.retry_many(jobs)) == number
    assert sum(queue.cancel_many([job.id for job in jobs[::2]])) == number // 2
    again = queue.reserve_many(number)
    assert ids(again) == ids(jobs[1::2])
    assert sum(queue.ack_many(again)) == number // 2
    assert queue.counts().retired == number
