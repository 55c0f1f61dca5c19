"""Models: the frozen values that operations return. No behavior lives here."""

from dataclasses import dataclass, field, fields
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
    FINISHED = "finished"
    """The id is retired: its job was acknowledged."""
    CANCELLED = "cancelled"
    """The id is retired: its job was cancelled."""
    UNKNOWN = "unknown"
    """No job has ever had this id."""


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """A reserved job: yours until you settle it with `ack` or `retry`, or it is cancelled.

    `attempt` is 1 at the first reservation and one more at each later one, never repeated for an
    id: a fencing number, which may be passed on to other systems. `token` is the claim token of
    this reservation; passed to `ack` or `retry` it must match, too.
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
    """

    reason: Reason
    job: Job[T] | None = None
    attempt: int | None = None
    same_payload: bool | None = None
    occupancy: Occupancy | None = None
    error: Exception | None = None

    def __bool__(self) -> bool:
        return self.reason is Reason.DONE

    def __repr__(self) -> str:
        known = [(f.name, getattr(self, f.name)) for f in fields(self)[1:]]
        details = [f", {name}={value!r}" for name, value in known if value is not None]
        return f"Outcome({self.reason!s}{''.join(details)})"


@dataclass(frozen=True, slots=True)
class Settings:
    """A queue's stored settings. `capacity` None is unbounded."""

    capacity: int | None
    codec: str
