"""Replies: what scripts answer, read into Outcomes and other values. No I/O, and no decisions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from durableq.codecs import Codec
from durableq.errors import DecodeError, QueueCorrupt
from durableq.models import (
    FailedJob,
    Failure,
    FailureReason,
    Job,
    Occupancy,
    Outcome,
    Reason,
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
    number, soon, more, void, *rest = reply.value
    jobs, others = rest[: 3 * int(number)], rest[3 * int(number) :]
    outcomes = [_reserved(jobs[at : at + 3], reply) for at in range(0, len(jobs), 3)]
    outcomes += [Outcome(Reason.CANCELLED)] * int(void)
    empty: Outcome[Any] = Outcome(Reason.EMPTY, more=bool(int(more)), due=_seconds(soon))
    outcomes += [empty] * (reply.count - len(outcomes))
    failed = tuple(_failure(text.decode()) for text in others)
    return [replace(outcomes[0], failed=failed), *outcomes[1:]] if failed else outcomes


def _reserved(parts: Sequence[Any], reply: Reply) -> Outcome[Any]:
    name, attempt, data = parts[0].decode(), int(parts[1]), parts[2]
    try:
        job = Job(name, reply.codec.decode(data), attempt, reply.request)
    except Exception as error:
        broken = DecodeError(name, attempt, reply.request, data, reply.codec.name)
        broken.__cause__ = error
        return Outcome(Reason.DONE, attempt=attempt, error=broken)
    return Outcome(Reason.DONE, job=job, attempt=attempt)


def read_recovered(reply: Reply) -> list[Outcome[Any]]:
    """Read the reply of lua/reap.lua."""
    soon, more, *rest = reply.value
    texts = [text.decode() for text in rest]
    return [
        Outcome(
            Reason.DONE if texts else Reason.EMPTY,
            failed=tuple(_failure(text) for text in texts if text.startswith("!")),
            returned=tuple(text for text in texts if not text.startswith("!")),
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


def failed_jobs(value: Sequence[bytes], codec: Codec[Any]) -> list[FailedJob[Any]]:
    """Read the reply of lua/failed.lua."""
    return [_failed_job(value[at : at + 4], codec) for at in range(0, len(value), 4)]


def _failed_job(parts: Sequence[bytes], codec: Codec[Any]) -> FailedJob[Any]:
    id, record, data, error = parts[0].decode(), *parts[1:]
    try:
        # The record is that of lua/lib/record.lua, behind the reason.
        reason, _, attempt, spent, deaths, limit, _, _, enqueued, changed, _, _, worker = (
            record.decode().split(" ", 12)
        )
        job: FailedJob[Any] = FailedJob(
            id,
            None,
            attempt=int(attempt),
            spent=int(spent),
            deaths=int(deaths),
            limit=int(limit.rstrip("!")) if limit else None,
            reason=FailureReason(reason),
            error=error.decode(),
            worker=worker,
            enqueued_at=_EPOCH + timedelta(milliseconds=int(enqueued)),
            failed_at=_EPOCH + timedelta(milliseconds=int(enqueued) + int(changed)),
        )
    except ValueError as error_in_it:
        raise QueueCorrupt(
            f"the record of failed job {id!r} cannot be read: {error_in_it}"
        ) from None
    try:
        return replace(job, payload=codec.decode(data))
    except Exception as cause:
        broken = DecodeError(id, job.attempt, "", data, codec.name, in_flight=False)
        broken.__cause__ = cause
        return replace(job, undecodable=broken)
