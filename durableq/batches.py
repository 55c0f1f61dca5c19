"""Batches: many items of one kind as few operations, without I/O, for the `..._many` methods.

What an item may be is told by `Enqueued` and `Held`. Whatever is wrong with one is raised with a
note that says which. Single operations are in operations.py; sending these is in bulk.py.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from durableq import arguments, operations
from durableq.codecs import Codec
from durableq.errors import DurableQueueError
from durableq.models import Job, Outcome, Reason
from durableq.operations import MAX_BATCH, MAX_BATCH_BYTES, Operation

T = TypeVar("T")

Enqueued: TypeAlias = tuple[str, T] | Operation
"""A job for `enqueue_many`: its id and payload, or an `operations.enqueue(...)` with all else."""

Held: TypeAlias = Job[T] | tuple[str, int]
"""A job in flight: as it was reserved, or its id and attempt number."""

Progress: TypeAlias = Callable[[int], object]
"""Called after every few chunks, with the number of items that are answered by then."""

TOGETHER = 16
"""The chunks that are made and sent together."""

Make: TypeAlias = Callable[[Any], tuple[bytes, ...]]


def enqueues(
    jobs: Iterable[Enqueued[Any]],
    codec: Codec[Any],
    *,
    priority: int,
    delay: float | timedelta | None,
    at: datetime | None,
    max_attempts: int | None,
) -> Iterator[Operation]:
    """Return the operations that accept `jobs`; the rest is for those given as id and payload."""
    like = operations.enqueue(
        "like", "", priority=priority, delay=delay, at=at, max_attempts=max_attempts
    )
    middle = like.args[1:]
    new_id, encoded = arguments.new_id, arguments.payload

    def made(job: Any) -> tuple[bytes, ...]:
        if isinstance(job, Operation):
            if job.kind != like.kind:
                raise TypeError(f"enqueue_many takes no operations.{job.kind}")
            return job.encoded(codec)
        if not isinstance(job, tuple | list) or len(job) != 2:
            raise TypeError(
                "enqueue_many takes (id, payload) or operations.enqueue(...), not "
                f"{arguments.shown(job)}"
            )
        name = new_id(job[0])
        return (name, *middle, encoded(name, job[1], codec))

    return _batches(like, jobs, made)


def cancels(ids: Iterable[str]) -> Iterator[Operation]:
    """Return the operations that cancel the jobs with these ids."""
    if isinstance(ids, str):
        raise TypeError("cancel_many takes ids, not one id: use cancel")
    return _batches(operations.cancel("like"), ids, lambda id: (arguments.known_id(id),))


def settled(like: Operation, jobs: Iterable[Held[Any]]) -> Iterator[Operation]:
    """Return the operations that do to each of `jobs` what `like` does to one."""
    rest = like.args[3:]

    def made(job: Any) -> tuple[bytes, ...]:
        if isinstance(job, Job):
            return (*arguments.claim(job.id, job.attempt, job.token), *rest)
        if isinstance(job, tuple | list) and len(job) == 2:
            return (*arguments.claim(job[0], job[1], None), *rest)
        raise TypeError(f"{like.kind}_many takes Jobs or (id, attempt), not {arguments.shown(job)}")

    return _batches(like, jobs, made)


def reserves(like: Operation, count: int) -> Operation:
    """Return the operation that reserves up to `count` jobs, or as many as one call may."""
    return like.several(min(count, operations.MOST_RESERVED), like.args)


def turn(done: Iterable[Job[Any] | Operation]) -> Iterator[Operation]:
    """Return the operations that settle `done`, in this order: Jobs are acknowledged."""
    acks: list[Job[Any]] = []
    like = operations.ack("like", 1)
    for each in done:
        if not isinstance(each, Operation):
            acks.append(each)
            continue
        if each.kind == "reserve":
            raise TypeError("exchange settles: how many jobs to reserve is told by want=")
        yield from settled(like, acks)
        acks = []
        yield each
    yield from settled(like, acks)


def _batches(like: Operation, items: Iterable[Any], made: Make) -> Iterator[Operation]:
    """Yield operations for runs of `items`, each of whose arguments are `made` of it."""
    args: list[bytes] = []
    count = size = before = 0
    for item in items:
        try:
            more = made(item)
        except Exception as error:
            error.add_note(
                f"durableq: that is item {before + count} of those given, counted from 0"
            )
            raise
        more_size = sum(map(len, more))
        if count == MAX_BATCH or size + more_size > MAX_BATCH_BYTES:
            yield like.several(count, tuple(args))
            args, before, count, size = [], before + count, 0, 0
        args += more
        count += 1
        size += more_size
    if count:
        yield like.several(count, tuple(args))


def checked(given: Iterable[Any], every: Iterator[Operation]) -> Iterable[Operation]:
    """Return what is made of the items given: of a list all is made, and so checked, first."""
    return list(every) if isinstance(given, list | tuple) else every


def done(outcomes: list[Outcome[Any]]) -> list[bool]:
    """Tell of each whether it took effect."""
    return [outcome.reason is Reason.DONE for outcome in outcomes]


def read_jobs(outcomes: list[Outcome[T]]) -> list[Job[T]]:
    """Return the jobs of a reserve, or raise the first that cannot be read."""
    for outcome in outcomes:
        if isinstance(outcome.error, DurableQueueError):
            outcome.error.outcomes = tuple(outcomes)
            raise outcome.error
    return [outcome.job for outcome in outcomes if outcome.job is not None]
