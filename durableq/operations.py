"""Operations: each one once, without I/O: its script, its arguments, and how to read the reply.

The functions at the end each make an `Operation`; `Queue.execute` runs one or many. A `Plan` turns
a list of them into as few script calls as keep their order: consecutive ones of a kind share one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from durableq import arguments, replies
from durableq.arguments import MAX_PAYLOAD
from durableq.codecs import Codec
from durableq.delivery import Call, Delivery
from durableq.errors import DecodeError, InvalidArgument
from durableq.models import UNSET, Job, Outcome, Reason
from durableq.replies import Reply
from durableq.scripts import script

MAX_BATCH = 250
"""The most items in one call, which bounds the time that the server spends on it."""

MAX_BATCH_BYTES = 4 * MAX_PAYLOAD
MAX_RESERVES = 16
"""The same for single reserves, whose payloads may be of any size."""

MOST_RESERVED = 100
"""The same for reserves made at once: they may get less, where the payloads are large."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, or `count` of a kind: made by the functions of this module, not yet run."""

    kind: str
    read: Callable[[Reply], list[Outcome[Any]]]
    args: tuple[bytes, ...] = ()
    payload: Any = UNSET
    """What the queue's codec is to encode as one more argument."""
    last: bool = False
    """Whether its answer must be read before anything else is sent (see `Call`)."""
    count: int = 1
    most: int = MAX_BATCH
    """The most of its kind in one call."""
    common: tuple[bytes, ...] = ()
    """Arguments for the whole call, ahead of those of its items; only equal ones share a call."""
    woken: bool | None = None
    """Of what can wait: whether a ring has woken the caller, which no other gets then."""

    @property
    def hints(self) -> tuple[bytes, ...]:
        """The hints of the call (see `Call`)."""
        return () if self.woken is None else (b"%d" % self.woken,)

    def several(self, count: int, args: tuple[bytes, ...]) -> "Operation":
        """Return `count` operations like this one as one, with the arguments of them all."""
        return replace(self, args=args, payload=UNSET, count=count)

    def encoded(self, codec: Codec[Any]) -> tuple[bytes, ...]:
        """Return the arguments of the script for this item."""
        if self.payload is UNSET:
            return self.args
        return (*self.args, arguments.payload(self.args[0], self.payload, codec))


class Plan:
    """The calls for `operations` on the queue with these `keys`, and the reading of the replies."""

    def __init__(
        self, operations: Sequence[Operation], keys: tuple[bytes, ...], codec: Codec[Any]
    ) -> None:
        self.calls: list[Call] = []
        self._readers: list[Callable[[Reply], list[Outcome[Any]]]] = []
        self._codec = codec
        self.reserves = False
        for operation, args, items in _batches(operations, codec):
            self._readers.append(operation.read)
            self.reserves = self.reserves or operation.kind == "reserve"
            size = sum(map(len, args))
            made = script(operation.kind)
            self.calls.append(
                Call(
                    made,
                    keys,
                    (*operation.common, *args),
                    items,
                    last=operation.last,
                    size=size,
                    hints=operation.hints,
                )
            )

    def outcomes(self, delivery: Delivery) -> list[Outcome[Any]]:
        """Return an outcome for each operation answered so far."""
        outcomes: list[Outcome[Any]] = []
        for call, read, value, request in zip(
            self.calls, self._readers, delivery.replies, delivery.tokens, strict=False
        ):
            outcomes += read(Reply(value, call.count, request, self._codec))
        return outcomes

    @staticmethod
    def asks_again(outcomes: Sequence[Outcome[Any]]) -> bool:
        """Tell whether a reserve has no answer yet.

        What it had taken was lost with the reply, and cancelled before it was asked for again; or
        it has recovered jobs, and there is more to recover.
        """
        first = outcomes[0]
        return first.reason is Reason.CANCELLED or (first.reason is Reason.EMPTY and first.more)

    @staticmethod
    def releases(outcomes: Iterable[Outcome[Any]]) -> list[Operation]:
        """Return what hands back the jobs that were reserved, readable or not."""
        taken = [outcome.job or outcome.error for outcome in outcomes]
        held = [job for job in taken if isinstance(job, Job | DecodeError)]
        return [release(job.id, job.attempt, token=job.token) for job in held]


def _batches(
    operations: Sequence[Operation], codec: Codec[Any]
) -> Iterator[tuple[Operation, tuple[bytes, ...], int]]:
    """Yield runs of operations of one kind: the first of them, all arguments, how many."""
    first: Operation | None = None
    args: list[bytes] = []
    items = size = 0
    for operation in operations:
        if not isinstance(operation, Operation):
            raise TypeError(f"execute takes operations, not {type(operation).__name__}")
        more = operation.encoded(codec)
        more_size = sum(map(len, more))
        full = items + operation.count > operation.most or size + more_size > MAX_BATCH_BYTES
        alike = first and _alike(first, operation)
        if first is not None and (full or not alike):
            yield first, tuple(args), items
            first = None
        if first is None:
            first, args, items, size = operation, [], 0, 0
        args += more
        items += operation.count
        size += more_size
    if first is not None:
        yield first, tuple(args), items


def _alike(one: Operation, other: Operation) -> bool:
    """Tell whether two operations may share a call."""
    return (one.kind, one.hints, one.common) == (other.kind, other.hints, other.common)


# The operations


def enqueue(
    id: str,
    payload: Any = "",
    *,
    priority: int = 0,
    delay: float | timedelta | None = None,
    at: datetime | None = None,
    max_attempts: int | None = None,
) -> Operation:
    """Accept a new job; see `Queue.enqueue`."""
    args = (
        arguments.new_id(id),
        arguments.limit(max_attempts),
        arguments.priority(priority),
        arguments.due(delay, at),
    )
    return Operation("enqueue", replies.read_words, args, payload, woken=False)


def reserve(
    *,
    lease: float | timedelta | None = None,
    worker: str | None = None,
    max_attempts: int | None = None,
) -> Operation:
    """Hand out the oldest waiting job; see `Queue.reserve`."""
    common = (arguments.lease(lease), arguments.limit(max_attempts), arguments.worker(worker))
    read, most = replies.read_jobs, MAX_RESERVES
    return Operation("reserve", read, last=True, most=most, common=common, woken=False)


def ack(id: str, attempt: int, *, token: str | None = None) -> Operation:
    """Finish a job; see `Queue.ack`."""
    return Operation("ack", replies.read_words, arguments.claim(id, attempt, token))


def retry(
    id: str,
    attempt: int,
    *,
    delay: float | timedelta | None = None,
    error: str | None = None,
    token: str | None = None,
) -> Operation:
    """Give a job back to the waiting tail, now or later; see `Queue.retry`."""
    due = arguments.due(delay, None)
    args = (*arguments.claim(id, attempt, token), arguments.error_text(error), due)
    return Operation("retry", replies.read_words, args)


def fail(id: str, attempt: int, *, error: str | None = None, token: str | None = None) -> Operation:
    """Give a job up for good; see `Queue.fail`."""
    args = (*arguments.claim(id, attempt, token), arguments.error_text(error), b"")
    return Operation("fail", replies.read_words, args)


def release(id: str, attempt: int, *, token: str | None = None) -> Operation:
    """Hand back a job unstarted, to the head of waiting; see `Queue.release`."""
    return Operation("release", replies.read_words, arguments.claim(id, attempt, token))


def extend(
    id: str,
    attempt: int,
    lease: float | timedelta | None = None,
    *,
    token: str | None = None,
) -> Operation:
    """Let a lease end later; see `Queue.extend`."""
    args = (*arguments.claim(id, attempt, token), arguments.lease(lease))
    return Operation("extend", replies.read_words, args)


def cancel(id: str) -> Operation:
    """Remove an active job at once; see `Queue.cancel`."""
    return Operation("cancel", replies.read_words, (arguments.known_id(id),))


def reschedule(
    id: str,
    *,
    delay: float | timedelta | None = None,
    at: datetime | None = None,
    priority: int | None = None,
) -> Operation:
    """Change when a job that is not in flight is due, or its priority; see `Queue.reschedule`."""
    if delay is None and at is None and priority is None:
        raise InvalidArgument("reschedule changes what it is given: delay, at or priority")
    due = arguments.due(delay, at)
    rank = b"" if priority is None else arguments.priority(priority)
    return Operation("reschedule", replies.read_words, (arguments.known_id(id), due, rank))


def reap() -> Operation:
    """Recover the jobs of leases and delays that have ended; see `Queue.reap`."""
    return Operation("reap", replies.read_recovered, most=1)


def redrive(id: str, *, max_attempts: int | None = None) -> Operation:
    """Put a failed job back to waiting; see `Queue.redrive`."""
    args = (arguments.known_id(id), arguments.limit(max_attempts))
    return Operation("redrive", replies.read_words, args)
