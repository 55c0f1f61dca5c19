"""The specification as a plain model: what every answer and every state must be."""

import math
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from durableq.models import Failure, FailureReason, Job, Occupancy, Outcome, Reason

DONE: Outcome[str] = Outcome(Reason.DONE)
RUNNING = math.inf
"""A lease that will end, some day after the test. One that has ended is a small number."""

FAR = 10**6
"""Ends of leases below it are the tests' own, and past; the order of them is what counts."""


_itself = lambda part: part
_VALUES = {list: tuple, set: frozenset, dict: lambda part: tuple(sorted(part.items()))}


@dataclass
class Model:
    """A queue in memory, without any care for speed or survival.

    `run` gives the Outcome that an operation must have. The methods named like operations run it,
    too, and return what those of a queue return: a job as a list of id, payload and attempt.

    Of a job there is told only what differs from what is usual: no limit, every attempt spent.
    """

    capacity: int | None = None
    waiting: list[str] = field(default_factory=list)
    in_flight: list[str] = field(default_factory=list)
    """As long as they keep their place among the waiting, in that order; so are those released."""
    payloads: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    retired: dict[str, str] = field(default_factory=dict)
    released: list[str] = field(default_factory=list)
    placed: list[str] = field(default_factory=list)
    """Those in flight and those released, in their order."""
    failed: list[str] = field(default_factory=list)
    """Those whose records are kept, the oldest failure first."""
    reasons: dict[str, str] = field(default_factory=dict)
    unspent: dict[str, int] = field(default_factory=dict)
    """How many attempts do not count against the limit."""
    deaths: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    """The limit that the last reservation was under, or the job's own."""
    own: set[str] = field(default_factory=set)
    leases: dict[str, float] = field(default_factory=dict)
    terms: dict[str, float] = field(default_factory=dict)
    """For how long those are reserved that do not go by the queue's lease."""

    # What is told, but decides nothing about jobs; and settings.
    errors: dict[str, str] = field(default_factory=dict, compare=False)
    workers: dict[str, str] = field(default_factory=dict, compare=False)
    lease: float | None = field(default=None, compare=False)
    max_attempts: int | None = field(default=None, compare=False)
    keep: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self.placed = self.placed or [*self.in_flight, *self.released]

    def copy(self) -> "Model":
        return Model(**{name: copy(value) for name, value in vars(self).items()})

    def state(self) -> tuple[Any, ...]:
        """Everything as one value."""
        return tuple(_VALUES.get(type(part), _itself)(part) for part in vars(self).values())

    def active(self) -> list[str]:
        return [*self.placed, *self.waiting]

    def spent(self, id: str) -> int:
        return self.attempts[id] - self.unspent.get(id, 0)

    def where(self, id: str) -> str:
        """The word for where a job is, or for why it is not active."""
        if id in self.in_flight:
            return "in_flight"
        if id in self.waiting or id in self.released:
            return "waiting"
        return self.retired.get(id, "unknown")

    # What a queue's methods return

    def reason(self, name: str, *args: Any, **kwargs: Any) -> str:
        """What `Outcome.reason` must say of an operation, asked before it is run."""
        return self.copy().run(name, *args, **kwargs).reason

    def enqueue(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("enqueue", *args, **kwargs))

    def reserve(self, **kwargs: Any) -> list[Any] | None:
        job = self.run("reserve", **kwargs).job
        return job and [job.id, job.payload, job.attempt]

    def ack(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("ack", *args, **kwargs))

    def retry(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("retry", *args, **kwargs))

    def fail(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("fail", *args, **kwargs))

    def release(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("release", *args, **kwargs))

    def extend(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("extend", *args, **kwargs))

    def cancel(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("cancel", *args, **kwargs))

    def reap(self) -> Outcome[str]:
        return self.run("reap")

    def redrive(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("redrive", *args, **kwargs))

    def redrive_all(self, *, max_attempts: int | None = None) -> int:
        return sum(self.redrive(id, max_attempts=max_attempts) for id in list(self.failed))

    def purge_failed(self) -> int:
        number = len(self.failed)
        self._forget(number)
        return number

    def expire(self, id: str, at: int) -> None:
        """Let a lease have ended; of two, the lower `at` is the earlier one."""
        self.leases[id] = at

    # The operations

    def run(self, name: str, *args: Any, **kwargs: Any) -> Outcome[str]:
        return getattr(self, f"_{name}")(*args, **kwargs)

    def _enqueue(
        self, id: str, payload: str = "", *, max_attempts: int | None = None
    ) -> Outcome[str]:
        if id in self.active():
            return Outcome(Reason.DUPLICATE, same_payload=self.payloads[id] == payload)
        if id in self.retired:
            return Outcome(Reason(self.retired[id]))
        if (full := self._full()) is not None:
            return full
        self.waiting.append(id)
        self.payloads[id], self.attempts[id] = payload, 0
        self._own(id, max_attempts)
        return DONE

    def _reserve(
        self,
        *,
        lease: float | None = None,
        worker: str | None = None,
        max_attempts: int | None = None,
    ) -> Outcome[str]:
        _, failures = self._recover()
        for id in [*self.released, *self.waiting]:
            limit = self.limits[id] if id in self.own else self.max_attempts or max_attempts
            self._put(self.limits, id, limit)
            if limit is not None and self.spent(id) >= limit:
                failures.append(self._failing(id, "exhausted"))
                continue
            if id in self.waiting:
                self.waiting.remove(id)
                self.placed.append(id)
            else:
                self.released.remove(id)
            self.in_flight = [each for each in self.placed if each not in self.released]
            self.attempts[id] += 1
            self._put(self.terms, id, lease)
            self._put(self.leases, id, RUNNING if lease or self.lease else None)
            self._put(self.workers, id, worker)
            self._trim()
            job, attempt = Job(id, self.payloads[id], self.attempts[id]), self.attempts[id]
            return Outcome(Reason.DONE, job=job, attempt=attempt, failed=tuple(failures))
        return Outcome(Reason.EMPTY, failed=tuple(failures), due=self._due())

    def _ack(self, id: str, attempt: int, *, mine: bool = True) -> Outcome[str]:
        if (refused := self._refused(id, attempt, mine)) is not None:
            return refused
        self._retire(id, "finished")
        return DONE

    def _retry(
        self, id: str, attempt: int, *, error: str | None = None, mine: bool = True
    ) -> Outcome[str]:
        if (refused := self._refused(id, attempt, mine)) is not None:
            return refused
        self._put(self.errors, id, error or self.errors.get(id))
        if self._used_up(id):
            return Outcome(Reason.DONE, failed=(self._failing(id, "exhausted"),))
        self._wait(id)
        return DONE

    def _fail(
        self, id: str, attempt: int, *, error: str | None = None, mine: bool = True
    ) -> Outcome[str]:
        if (refused := self._refused(id, attempt, mine)) is not None:
            return refused
        self._put(self.errors, id, error or self.errors.get(id))
        return Outcome(Reason.DONE, failed=(self._failing(id, "rejected"),))

    def _release(self, id: str, attempt: int, *, mine: bool = True) -> Outcome[str]:
        if (refused := self._refused(id, attempt, mine)) is not None:
            return refused
        self.in_flight.remove(id)
        self.released = [each for each in self.placed if each not in self.in_flight]
        self.unspent[id] = self.unspent.get(id, 0) + 1
        self.leases.pop(id, None)
        self.terms.pop(id, None)
        self.workers.pop(id, None)
        return DONE

    def _extend(
        self, id: str, attempt: int, lease: float | None = None, *, mine: bool = True
    ) -> Outcome[str]:
        if (refused := self._refused(id, attempt, mine)) is not None:
            return refused
        self._put(self.terms, id, lease or self.terms.get(id))
        self._put(self.leases, id, RUNNING if id in self.terms or self.lease else None)
        return DONE

    def _cancel(self, id: str) -> Outcome[str]:
        if id not in self.active():
            return Outcome(Reason(self.where(id)))
        self._retire(id, "cancelled")
        return DONE

    def _reap(self) -> Outcome[str]:
        returned, failures = self._recover()
        self._trim()
        return Outcome(
            Reason.DONE if returned or failures else Reason.EMPTY,
            failed=tuple(failures),
            returned=tuple(returned),
            due=self._due(),
        )

    def _redrive(self, id: str, *, max_attempts: int | None = None) -> Outcome[str]:
        if id not in self.failed:
            return Outcome(Reason(self.where(id)))
        if (full := self._full()) is not None:
            return full
        self.failed.remove(id)
        del self.retired[id], self.reasons[id]
        self._put(self.unspent, id, self.attempts[id] or None)
        self.deaths.pop(id, None)
        self._own(id, max_attempts or (self.limits.get(id) if id in self.own else None))
        self._wait(id)
        return DONE

    # Their parts

    def _put(self, where: dict[str, Any], id: str, value: Any) -> None:
        where.pop(id, None)
        if value is not None:
            where[id] = value

    def _own(self, id: str, limit: int | None) -> None:
        self.own.discard(id)
        self._put(self.limits, id, limit)
        if limit is not None:
            self.own.add(id)

    def _used_up(self, id: str) -> bool:
        return id in self.limits and self.spent(id) >= self.limits[id]

    def _recover(self) -> tuple[list[str], list[Failure]]:
        ended = [id for id in self.in_flight if self.leases.get(id, RUNNING) != RUNNING]
        returned, failures = [], []
        for id in sorted(ended, key=lambda id: self.leases[id]):
            self.deaths[id] = self.deaths.get(id, 0) + 1
            if self._used_up(id):
                failures.append(self._failing(id, "expired"))
            else:
                self._wait(id)
                returned.append(id)
        return returned, failures

    def _leave(self, id: str) -> None:
        for place in (self.waiting, self.in_flight, self.released, self.placed):
            if id in place:
                place.remove(id)
        self.leases.pop(id, None)
        self.terms.pop(id, None)

    def _wait(self, id: str) -> None:
        self._leave(id)
        self.waiting.append(id)
        self.workers.pop(id, None)

    def _failing(self, id: str, reason: str) -> Failure:
        self._leave(id)
        self.failed.append(id)
        self.reasons[id], self.retired[id] = reason, "failed"
        failure = Failure(id, self.attempts[id], FailureReason(reason))
        self._trim()
        return failure

    def _trim(self) -> None:
        if self.keep is not None:
            self._forget(len(self.failed) - self.keep)

    def _forget(self, number: int) -> None:
        for id in self.failed[: max(number, 0)]:
            self._retire(id, "purged")

    def _retire(self, id: str, how: str) -> None:
        self._leave(id)
        if id in self.failed:
            self.failed.remove(id)
        for facts in (self.payloads, self.attempts, self.reasons, self.unspent, self.deaths):
            facts.pop(id, None)
        for facts in (self.limits, self.errors, self.workers):
            facts.pop(id, None)
        self.own.discard(id)
        self.retired[id] = how

    def _refused(self, id: str, attempt: int, mine: bool) -> Outcome[str] | None:
        if id not in self.in_flight:
            return Outcome(Reason(self.where(id)))
        if self.attempts[id] != attempt or not mine:
            return Outcome(Reason.STALE, attempt=self.attempts[id])
        return None

    def _full(self) -> Outcome[str] | None:
        active, held = len(self.active()), len(self.in_flight)
        if self.capacity is None or active < self.capacity:
            return None
        return Outcome(Reason.FULL, occupancy=Occupancy(active - held, 0, held, self.capacity))

    def _due(self) -> float | None:
        """Whether there is a next lease to end, as `told` has it."""
        return RUNNING if RUNNING in self.leases.values() else None


def told(outcome: Outcome[Any]) -> Outcome[Any]:
    """What a queue answered, without what a model cannot know: when the next lease will end."""
    assert outcome.due is None or outcome.due > 0
    return outcome if outcome.due is None else replace(outcome, due=RUNNING)


def check_hints(
    name: str,
    outcome: Outcome[Any],
    before: Model,
    after: Model,
    contents: dict[str, Any],
) -> None:
    """What a step that took effect must leave for those who sleep until there is work or room."""
    comes = name in ("enqueue", "redrive", "release") or (name == "retry" and not outcome.failed)
    if (comes and outcome) or outcome.returned:
        assert contents.get("bell") == [b""], "whoever waits for work hears of it"
    full = after.capacity is not None and len(before.active()) >= after.capacity
    if full and len(after.active()) < after.capacity:
        assert contents.get("room"), "whoever waits for room hears of it"


def observed(contents: dict[str, Any]) -> Model:
    """The model's state, read from a queue's raw keys (by part), checked for consistency."""
    text = lambda part: {k.decode(): v.decode() for k, v in contents.get(part, {}).items()}
    names = lambda part: {id.decode() for id in contents.get(part, set())}
    scored = lambda part: {member.decode(): score for member, score in contents.get(part, [])}
    number = lambda field: int(meta[field]) if meta.get(field) else None
    meta, payloads, errors = text("meta"), text("payloads"), text("errors")
    records = {id: record.split(" ", 11) for id, record in text("jobs").items()}
    failures = {}
    for id, record in text("failures").items():
        reason, _, rest = record.partition(" ")
        failures[id] = [*rest.split(" ", 11), reason]
    retired, cancelled = names("retired"), names("cancelled")

    everything = records | failures
    member = {id: record[6].zfill(13) + id for id, record in everything.items()}
    state = {id: record[0][1] for id, record in everything.items()}
    by_sequence = lambda ids: sorted(ids, key=lambda id: member[id])
    in_state = lambda *states: by_sequence(id for id in everything if state[id] in states)

    # Each job is in exactly one place.
    order = [id.decode() for part in ("front", "waiting") for id in contents.get(part, [])]
    ghosts = [id for id in order if id not in records]
    assert len(order) == len(set(order))
    assert [id for id in order if id in records] == in_state("w")
    assert bool(in_state("w")) or not order, "where no job waits in the lists they are empty"
    assert all(id in cancelled for id in ghosts)
    assert len(ghosts) == int(meta.get("ghosts", 0))
    ranks = {member[id]: int(records[id][6]) - 2**40 for id in in_state("r")}
    assert scored("ranked") == ranks
    leases = scored("leases")
    assert sorted(leases) == [member[id] for id in in_state("f")]
    assert not records.keys() & failures.keys()
    assert in_state("x") == by_sequence(failures)
    moments = {member[id]: int(record[7]) + int(record[8]) for id, record in failures.items()}
    assert scored("failed") == moments
    sequences = [int(record[6]) for record in everything.values()]
    assert len(set(sequences)) == len(sequences)
    assert max(sequences, default=0) <= int(meta.get("sequence", 0))

    # What is kept besides is that of a job, and no id has two fates.
    assert payloads.keys() == everything.keys()
    assert errors.keys() <= everything.keys()
    marks = {id.removeprefix("!") for id in cancelled if id.startswith("!")}
    plain = {id for id in cancelled if not id.startswith("!")}
    assert not marks & plain
    assert marks | plain <= retired
    assert failures.keys() <= marks
    assert not retired & records.keys()
    assert not {"delayed", "headers", "workers", "history"} & contents.keys()
    assert len(contents.get("bell", [])) <= 1
    assert len(contents.get("room", [])) <= 64

    model = Model(
        number("capacity"),
        in_state("w"),
        in_state("f"),
        payloads,
        released=in_state("r"),
        placed=in_state("f", "r"),
        failed=[name[13:] for name in scored("failed")],
        reasons={id: record[12] for id, record in failures.items()},
        errors=errors,
        lease=int(meta["lease"]) / 1000 if meta.get("lease") else None,
        max_attempts=number("max_attempts"),
        keep=number("keep_count"),
    )
    for id, record in everything.items():
        attempt, spent, deaths = map(int, record[1:4])
        limit = int(record[4].rstrip("!")) if record[4] else None
        assert record[0][0] == "1"
        assert 0 <= spent <= attempt
        assert 0 <= deaths <= attempt
        if limit is not None and state[id] != "x":
            most = limit if state[id] == "f" else limit - 1
            assert spent <= most, "nothing waits that has used up the limit it was reserved under"
        assert bool(record[9]) == (state[id] == "f"), "a claim token while in flight, and only then"
        assert state[id] == "f" or not record[10], (
            "a lease of its own while in flight, and only then"
        )
        assert state[id] in "fx" or not record[11], "a worker only of who is, or was, in flight"
        model.attempts[id] = attempt
        end = leases.get(member[id], math.inf)
        for facts, value, usual in (
            (model.unspent, attempt - spent, 0),
            (model.deaths, deaths, 0),
            (model.limits, limit, None),
            (model.workers, record[11], ""),
            (model.terms, int(record[10] or 0) / 1000, 0),
            (model.leases, end if end < FAR else RUNNING, RUNNING if end == math.inf else None),
        ):
            if value != usual:
                facts[id] = value
        if record[4].endswith("!"):
            model.own.add(id)
    for id in retired:
        how = "failed" if id in failures else "purged"
        model.retired[id] = how if id in marks else "cancelled" if id in plain else "finished"
    return model
