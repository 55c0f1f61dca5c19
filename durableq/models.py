"""Models: the frozen values that operations return. No behavior lives here."""

from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, Literal, TypeVar

T = TypeVar("T")


class Unset(StrEnum):
    """The type of `UNSET`: an argument that was not given, where None has a meaning."""

    UNSET = "not given"


UNSET: Literal[Unset.UNSET] = Unset.UNSET


class Reason(StrEnum):
    """What became of an operation: `DONE`, or why it was refused and changed nothing."""

    DONE = "done"
    DUPLICATE = "duplicate"
    """The id is that of an active job; `Outcome.same_payload` compares the payloads."""
    FULL = "full"
    """The queue has no room; `Outcome.occupancy` says what fills it."""
    EMPTY = "empty"
    """Nothing is waiting (jobs may be in flight)."""
    STALE = "stale"
    """The job is in flight under another attempt (`Outcome.attempt`) or claim token."""
    WAITING = "waiting"
    DELAYED = "delayed"
    IN_FLIGHT = "in_flight"
    FINISHED = "finished"
    """The id is retired: its job was acknowledged."""
    CANCELLED = "cancelled"
    """The id is retired: its job was cancelled."""
    FAILED = "failed"
    """The id is retired: its job failed for good; `redrive` puts it back to waiting."""
    PURGED = "purged"
    """The id is retired: its job failed, and the record of it was dropped."""
    UNKNOWN = "unknown"
    """No job has ever had this id."""


ACTIVE = (Reason.WAITING, Reason.DELAYED, Reason.IN_FLIGHT)
"""Where an active job is."""


class FailureReason(StrEnum):
    """Why a job failed for good."""

    EXHAUSTED = "exhausted"
    """Its last allowed attempt was given back by `retry`, or a lower limit came into force."""
    EXPIRED = "expired"
    """The lease of its last allowed attempt ended: its worker died, hung or lost the server."""
    REJECTED = "rejected"
    """Its holder gave it up by `fail`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """That a job has just failed for good, by which attempt, and why."""

    id: str
    attempt: int
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class FailedJob(Generic[T]):
    """The record of a job that failed for good, as `failed` lists it.

    `spent` of `attempt` attempts counted against `limit` (None: there was none), `deaths` of them
    ended by an expired lease. `error` is the last error text, "" if there was none, `worker` the
    last worker's name. If the payload cannot be decoded, it is None and `undecodable` tells why.
    """

    id: str
    payload: T | None
    attempt: int
    spent: int
    deaths: int
    limit: int | None
    reason: FailureReason
    error: str
    worker: str
    enqueued_at: datetime
    failed_at: datetime
    undecodable: Exception | None = None


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """A reserved job: yours until you settle it, it is cancelled, or its lease ends and is reaped.

    `attempt` is 1 at the first reservation and one more at each later one, never repeated for an
    id: a fencing number, which may be passed on to other systems. `token` is the claim token of
    this reservation; passed to `ack` and the others it must match, too.
    """

    id: str
    payload: T
    attempt: int
    token: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What filled a queue when it refused a job: numbers of jobs, and its capacity."""

    waiting: int
    delayed: int
    in_flight: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What an operation did, decided in the same atomic step; truthy only if it took effect.

    `reason` says which refusal it was, and the other fields carry what is known about it (None
    where they do not apply). `job` is what a reserve handed out; if its payload could not be
    decoded, `job` is None and `error` is the `DecodeError`, which names the job.

    `failed` are the jobs that failed for good in this very step: by this retry or fail, or met by
    a reserve or reap; `returned` are the ids that a reap put back to waiting. A reserve or reap
    recovers a bounded number: if `more` is true there is more to do at once, and EMPTY means only
    that this call found nothing. `due` is the seconds until the next lease ends, if any will.
    """

    reason: Reason
    job: Job[T] | None = None
    attempt: int | None = None
    same_payload: bool | None = None
    occupancy: Occupancy | None = None
    error: Exception | None = None
    failed: tuple[Failure, ...] = ()
    returned: tuple[str, ...] = ()
    more: bool = False
    due: float | None = None

    def __bool__(self) -> bool:
        return self.reason is Reason.DONE

    def __repr__(self) -> str:
        known = [(f.name, getattr(self, f.name), f.default) for f in fields(self)[1:]]
        details = [f", {name}={value!r}" for name, value, usual in known if value is not usual]
        return f"Outcome({self.reason!s}{''.join(details)})"


@dataclass(frozen=True, slots=True)
class Keep:
    """How many records of failed jobs are kept, and for how long: None is without a bound.

    The oldest go first, a bounded number whenever a job fails or is reserved, or `reap` is called.
    The ids stay retired.
    """

    count: int | None = None
    age: float | timedelta | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """A queue's stored settings. None is without a bound, a lease or a limit; times are seconds."""

    capacity: int | None
    codec: str
    lease: float | None = None
    max_attempts: int | None = None
    keep_failed: Keep = field(default_factory=Keep)
