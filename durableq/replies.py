"""Replies: what scripts answer, read into Outcomes and other values. No I/O, and no decisions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from durableq.codecs import Codec
from durableq.errors import DecodeError, QueueCorrupt
from durableq.models import (
    Counts,
    Event,
    Failure,
    FailureReason,
    Job,
    JobView,
    Occupancy,
    Outcome,
    Position,
    Reason,
    Transition,
)

_DONE: Outcome[Any] = Outcome(Reason.DONE)
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Reply:
    """A script's reply to `count` items, with the request token and codec it belongs to."""

    value: Any
    count: int
    request: str
    codec: Codec[Any]


def read_words(reply: Reply) -> list[Outcome[Any]]:
    """Read a reply of one text per item: a reason and what belongs to it."""
    if len(reply.value) != reply.count:
        raise QueueCorrupt(f"a script answered {len(reply.value)} items of {reply.count}")
    return [_DONE if words == b"ok" else _outcome(words.decode()) for words in reply.value]


def read_jobs(reply: Reply) -> list[Outcome[Any]]:
    """Read the reply of lua/reserve.lua: as many jobs as there were, for `count` reserves.

    The answer to a repeated call has `void` ones: reserved the first time, and cancelled or reaped
    since. What the call recovered is told by the first outcome.
    """
    number, soon, more, void, paused, *rest = reply.value
    jobs, others = rest[: 3 * int(number)], rest[3 * int(number) :]
    outcomes = _reserved(jobs, reply)
    outcomes += [Outcome(Reason.CANCELLED)] * int(void)
    why = Reason.PAUSED if int(paused) else Reason.EMPTY
    empty: Outcome[Any] = Outcome(why, more=bool(int(more)), due=_seconds(soon))
    outcomes += [empty] * (reply.count - len(outcomes))
    failed = tuple(_failure(text.decode()) for text in others)
    return [replace(outcomes[0], failed=failed), *outcomes[1:]] if failed else outcomes


def _reserved(jobs: Sequence[Any], reply: Reply) -> list[Outcome[Any]]:
    """Return an outcome for each job: its id, attempt and payload stand in a row."""
    outcomes: list[Outcome[Any]] = []
    decode, request, reserved = reply.codec.decode, reply.request, Reason.DONE
    for name, number, data in zip(jobs[::3], jobs[1::3], jobs[2::3], strict=True):
        id, attempt = name.decode(), int(number)
        try:
            job = Job(id, decode(data), attempt, request)
        except Exception as error:
            broken = DecodeError(id, attempt, request, data, reply.codec.name)
            broken.__cause__ = error
            outcomes.append(Outcome(reserved, attempt=attempt, error=broken))
        else:
            outcomes.append(Outcome(reserved, job, attempt))
    return outcomes


def read_recovered(reply: Reply) -> list[Outcome[Any]]:
    """Read the reply of lua/reap.lua."""
    soon, more, *rest = reply.value
    texts = [text.decode() for text in rest]
    return [
        Outcome(
            Reason.DONE if texts else Reason.EMPTY,
            failed=tuple(_failure(text) for text in texts if text.startswith("!")),
            returned=tuple(text for text in texts if not text.startswith(("!", "*"))),
            promoted=tuple(text[1:] for text in texts if text.startswith("*")),
            more=bool(int(more)),
            due=_seconds(soon),
        )
    ]


def _outcome(words: str) -> Outcome[Any]:
    if words.startswith("!"):
        return Outcome(Reason.DONE, failed=(_failure(words),))
    reason, *details = words.split()
    match reason, details:
        case "duplicate", [payload]:
            return Outcome(Reason.DUPLICATE, same_payload=payload == "same")
        case "full", [waiting, delayed, in_flight, capacity]:
            occupancy = Occupancy(int(waiting), int(delayed), int(in_flight), int(capacity))
            return Outcome(Reason.FULL, occupancy=occupancy)
        case "stale", [attempt]:
            return Outcome(Reason.STALE, attempt=int(attempt))
        case _, []:
            return Outcome(Reason(reason))
    raise QueueCorrupt(f"a script answered {words!r}")


def _failure(text: str) -> Failure:
    id, attempt, reason = text.removeprefix("!").split()
    return Failure(id, int(attempt), FailureReason(reason))


def _seconds(milliseconds: bytes) -> float | None:
    return int(milliseconds) / 1000 if milliseconds else None


def counts(value: Sequence[Any]) -> Counts:
    """Read the reply of lua/counts.lua."""
    waiting, delayed, in_flight, failed, retired, capacity, paused, oldest = value
    return Counts(
        int(waiting),
        int(delayed),
        int(in_flight),
        int(failed),
        int(retired),
        int(capacity) if capacity else None,
        paused == b"1",
        _seconds(oldest),
    )


def position(value: Sequence[int]) -> Position | None:
    """Read the reply of lua/position.lua."""
    return Position(*map(int, value)) if value else None


def transitions(value: Sequence[bytes]) -> list[Transition]:
    """Read the transitions in the reply of lua/history.lua."""
    found = []
    for at in range(0, len(value), 5):
        number, event, id, attempt, worker = (text.decode() for text in value[at : at + 5])
        time = _moment(int(number.partition("-")[0]))
        found.append(Transition(time, Event(event), id, int(attempt), worker))
    return found


def views(value: Sequence[bytes], codec: Codec[Any], *, payload: bool) -> list[JobView[Any]]:
    """Read jobs as lua/lib/view.lua tells them."""
    return [_view(value[at : at + 5], codec, payload) for at in range(0, len(value), 5)]


_STATES = {
    "1w": Reason.WAITING,
    "1r": Reason.WAITING,
    "1d": Reason.DELAYED,
    "1f": Reason.IN_FLIGHT,
    "1x": Reason.FAILED,
}


def _view(parts: Sequence[bytes], codec: Codec[Any], payload: bool) -> JobView[Any]:
    id, record, ends = (part.decode() for part in parts[:3])
    try:
        # The record is that of lua/lib/record.lua; of a failed job, behind the reason.
        reason, text = (None, record) if record[0].isdigit() else record.split(" ", 1)
        _, letter, attempt, _, spent, deaths, limit, priority, enqueued, changed, _, worker = (
            text.split(" ", 11)
        )
        state, end = _STATES[letter], _moment(int(ends)) if ends.isdecimal() else None
        view: JobView[Any] = JobView(
            id,
            state,
            attempt=int(attempt),
            spent=int(spent),
            deaths=int(deaths),
            limit=int(limit.rstrip("!")) if limit else None,
            priority=int(priority),
            enqueued_at=_moment(int(enqueued)),
            changed_at=_moment(int(enqueued) + int(changed)),
            due_at=end if state is Reason.DELAYED else None,
            lease_ends_at=end if state is Reason.IN_FLIGHT else None,
            worker=worker,
            error=parts[4].decode(),
            reason=None if reason is None else FailureReason(reason),
        )
    except (ValueError, LookupError, OverflowError) as cause:
        raise QueueCorrupt(f"the record of job {id!r} cannot be read: {cause}") from None
    if not payload:
        return view
    try:
        return replace(view, payload=codec.decode(parts[3]))
    except Exception as cause:
        broken = DecodeError(id, view.attempt, "", parts[3], codec.name, in_flight=False)
        broken.__cause__ = cause
        return replace(view, undecodable=broken)


def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
