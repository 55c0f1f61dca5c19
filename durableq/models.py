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
    """Nothing is waiting (jobs may be in flight or delayed)."""
    PAUSED = "paused"
    """The queue is paused: nothing is handed out until `resume`."""
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

IDLE = (Reason.EMPTY, Reason.PAUSED)
"""Why a reserve has no job: what waiting may help."""


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
class JobView(Generic[T]):
    """A job as it was when somebody looked: where it is and what has happened to it.

    `state` is WAITING, DELAYED, IN_FLIGHT or FAILED, and `changed_at` since when. `spent` of
    `attempt` attempts counted against `limit` (None: none was in force yet), `deaths` of them
    ended by an expired lease. `due_at` is when a delayed job joins the waiting ones,
    `lease_ends_at` when a reservation ends, if it does; `reason` why a failed job did. `error` is
    the last error text, "" if there was none; `worker` names who holds the job, or held it when it
    failed. `payload` is None where it was not asked for, or cannot be decoded: then `undecodable`
    tells why. Times are those of the server, in UTC.
    """

    id: str
    state: Reason
    attempt: int
    spent: int
    deaths: int
    limit: int | None
    priority: int
    enqueued_at: datetime
    changed_at: datetime
    due_at: datetime | None = None
    lease_ends_at: datetime | None = None
    worker: str = ""
    error: str = ""
    reason: FailureReason | None = None
    payload: T | None = None
    undecodable: Exception | None = None

    @property
    def failed_at(self) -> datetime | None:
        """When a failed job failed."""
        return self.changed_at if self.state is Reason.FAILED else None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the jobs in a state, and where to go on: None if these were the last."""

    jobs: tuple[JobView[T], ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Position:
    """How many jobs will be reserved before a waiting one, as things stand.

    The two are the same unless jobs were lately cancelled or rescheduled ahead of it.
    """

    at_least: int
    at_most: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs are in each state, in one moment.

    `retired` is the number of ids that are: of jobs acknowledged, cancelled or failed. `oldest` is
    for how many seconds the first job of some priority has waited, that of the longest wait; None
    if none waits. (Where over 1,000 cancelled jobs lie ahead of it, one close behind may stand for
    it; of over 250 priorities in use only the lowest are looked at.)
    """

    waiting: int
    delayed: int
    in_flight: int
    failed: int
    retired: int
    capacity: int | None
    paused: bool
    oldest: float | None


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
    a reserve or reap; `returned` are the ids that a reap put back to waiting, `promoted` those
    whose delay was over. A reserve or reap recovers a bounded number: if `more` is true there is
    more to do at once, and EMPTY means only that this call found nothing. `due` is the seconds
    until the next lease or delay ends, if any will.
    """

    reason: Reason
    job: Job[T] | None = None
    attempt: int | None = None
    same_payload: bool | None = None
    occupancy: Occupancy | None = None
    error: Exception | None = None
    failed: tuple[Failure, ...] = ()
    returned: tuple[str, ...] = ()
    promoted: tuple[str, ...] = ()
    more: bool = False
    due: float | None = None

    def __bool__(self) -> bool:
        return self.reason is Reason.DONE

    def __repr__(self) -> str:
        known = [(f.name, getattr(self, f.name), f.default) for f in fields(self)[1:]]
        details = [f", {name}={value!r}" for name, value, usual in known if value is not usual]
        return f"Outcome({self.reason!s}{''.join(details)})"


@dataclass(frozen=True, slots=True)
class Exchange(Generic[T]):
    """What became of the jobs that were settled, and of those that were to be reserved."""

    settled: list[Outcome[T]]
    reserved: list[Outcome[T]]

    @property
    def jobs(self) -> list[Job[T]]:
        """The jobs that were reserved, and can be read."""
        return [outcome.job for outcome in self.reserved if outcome.job is not None]


class Event(StrEnum):
    """What happened to a job, as the history tells it."""

    ENQUEUED = "enqueued"
    RESERVED = "reserved"
    ACKED = "acked"
    RETRIED = "retried"
    RELEASED = "released"
    EXPIRED = "expired"
    """Its lease ended, and was reaped; it waits again unless it has FAILED, which follows."""
    FAILED = "failed"
    REDRIVEN = "redriven"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    PROMOTED = "promoted"
    """Its delay was over; it waits."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Something that happened to a job.

    `time` is by the server's clock, `attempt` that of the last reservation (0: there was none),
    `worker` who had the job then, if that was told.
    """

    time: datetime
    event: Event
    id: str
    attempt: int
    worker: str


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
    """A queue's stored settings; times are seconds.

    None is without a bound, a lease, a limit, or a history.
    """

    capacity: int | None
    codec: str
    lease: float | None = None
    max_attempts: int | None = None
    keep_failed: Keep = field(default_factory=Keep)
    history: int | None = None
