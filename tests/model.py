"""The specification as a plain model: what every answer and every state must be."""

import math
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from support import Record

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
    order: list[str] = field(default_factory=list)
    """The active jobs, by when they last joined the waiting or delayed ones."""
    states: dict[str, str] = field(default_factory=dict)
    """Of each of them: waiting, released (and so waiting ahead), delayed or in_flight."""
    payloads: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    retired: dict[str, str] = field(default_factory=dict)
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
    dues: dict[str, float] = field(default_factory=dict)
    """Until when the delayed ones are."""
    priorities: dict[str, int] = field(default_factory=dict)
    """Those that are not 0."""
    paused: bool = False

    # What is told, but decides nothing about jobs; and settings.
    errors: dict[str, str] = field(default_factory=dict, compare=False)
    workers: dict[str, str] = field(default_factory=dict, compare=False)
    lease: float | None = field(default=None, compare=False)
    max_attempts: int | None = field(default=None, compare=False)
    keep: int | None = field(default=None, compare=False)
    history: int | None = field(default=None, compare=False)

    def copy(self) -> "Model":
        parts = {name: copy(value) for name, value in vars(self).items()}
        events = parts.pop("events")
        made = Model(**parts)
        made.events = events
        return made

    def __post_init__(self) -> None:
        self.events: list[tuple[str, str, int, str]] = []
        """What has happened, to which job, in which attempt, and to which worker."""

    def _note(self, event: str, id: str) -> None:
        self.events.append((event, id, self.attempts[id], self.workers.get(id, "")))

    def state(self) -> tuple[Any, ...]:
        """Everything as one value, but what has happened."""
        parts = vars(self) | {"events": ()}
        return tuple(_VALUES.get(type(part), _itself)(part) for part in parts.values())

    def those(self, *states: str) -> list[str]:
        """The jobs in any of these states, in their order."""
        return [id for id in self.order if self.states[id] in states]

    @property
    def waiting(self) -> list[str]:
        return self.those("waiting")

    @property
    def in_flight(self) -> list[str]:
        return self.those("in_flight")

    def line(self) -> list[str]:
        """The jobs that wait, in the order in which they will be reserved."""
        return sorted(self.those("waiting", "released"), key=self._rank)

    def _rank(self, id: str) -> tuple[int, bool]:
        return -self.priorities.get(id, 0), self.states[id] != "released"

    def spent(self, id: str) -> int:
        return self.attempts[id] - self.unspent.get(id, 0)

    def where(self, id: str) -> str:
        """The word for where a job is, or for why it is not active."""
        state = self.states.get(id) or self.retired.get(id, "unknown")
        return "waiting" if state == "released" else state

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

    def reschedule(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("reschedule", *args, **kwargs))

    def reap(self) -> Outcome[str]:
        return self.run("reap")

    def redrive(self, *args: Any, **kwargs: Any) -> bool:
        return bool(self.run("redrive", *args, **kwargs))

    def redrive_all(self, *, max_attempts: int | None = None) -> int:
        return sum(self.redrive(id, max_attempts=max_attempts) for id in list(self.failed))

    def pause(self) -> bool:
        was, self.paused = self.paused, True
        return not was

    def resume(self) -> bool:
        was, self.paused = self.paused, False
        return was

    def purge(self) -> int:
        return sum(self.cancel(id) for id in [*self.those("delayed"), *self.line()])

    def purge_failed(self) -> int:
        number = len(self.failed)
        self._forget(number)
        return number

    def expire(self, id: str, at: int) -> None:
        """Let a lease or a delay have ended; of two, the lower `at` is the earlier one."""
        (self.leases if id in self.leases else self.dues)[id] = at

    # The operations

    def run(self, name: str, *args: Any, **kwargs: Any) -> Outcome[str]:
        return getattr(self, f"_{name}")(*args, **kwargs)

    def _enqueue(
        self,
        id: str,
        payload: str = "",
        *,
        priority: int = 0,
        delay: float = 0,
        max_attempts: int | None = None,
    ) -> Outcome[str]:
        if id in self.states:
            return Outcome(Reason.DUPLICATE, same_payload=self.payloads[id] == payload)
        if id in self.retired:
            return Outcome(Reason(self.retired[id]))
        if (full := self._full()) is not None:
            return full
        self.payloads[id], self.attempts[id] = payload, 0
        self._own(id, max_attempts)
        self._put(self.priorities, id, priority or None)
        self._join(id, delay)
        self._note("enqueued", id)
        return DONE

    def _reserve(
        self,
        *,
        lease: float | None = None,
        worker: str | None = None,
        max_attempts: int | None = None,
    ) -> Outcome[str]:
        _, _, failures = self._recover()
        if self.paused:
            return Outcome(Reason.PAUSED, failed=tuple(failures), due=self._due())
        for id in self.line():
            limit = self.limits[id] if id in self.own else self.max_attempts or max_attempts
            self._put(self.limits, id, limit)
            if limit is not None and self.spent(id) >= limit:
                failures.append(self._failing(id, "exhausted"))
                continue
            self.states[id] = "in_flight"
            self.attempts[id] += 1
            self._put(self.terms, id, lease)
            self._put(self.leases, id, RUNNING if lease or self.lease else None)
            self._put(self.workers, id, worker)
            self._note("reserved", id)
            self._trim()
            job, attempt = Job(id, self.payloads[id], self.attempts[id]), self.attempts[id]
            return Outcome(Reason.DONE, job=job, attempt=attempt, failed=tuple(failures))
        return Outcome(Reason.EMPTY, failed=tuple(failures), due=self._due())

    def _ack(self, id: str, attempt: int, *, mine: bool = True) -> Outcome[str]:
        if (refused := self._refused(id, attempt, mine)) is not None:
            return refused
        self._note("acked", id)
        self._retire(id, "finished")
        return DONE

    def _retry(
        self,
        id: str,
        attempt: int,
        *,
        delay: float = 0,
        error: str | None = None,
        mine: bool = True,
    ) -> Outcome[str]:
        if (refused := self._refused(id, attempt, mine)) is not None:
            return refused
        self._put(self.errors, id, error or self.errors.get(id))
        if self._used_up(id):
            return Outcome(Reason.DONE, failed=(self._failing(id, "exhausted"),))
        self._note("retried", id)
        self._join(id, delay)
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
        self._note("released", id)
        self.states[id] = "released"
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
        if id not in self.states:
            return Outcome(Reason(self.where(id)))
        self._note("cancelled", id)
        self._retire(id, "cancelled")
        return DONE

    def _reschedule(
        self, id: str, *, delay: float | None = None, priority: int | None = None
    ) -> Outcome[str]:
        if self.states.get(id, "in_flight") == "in_flight":
            return Outcome(Reason(self.where(id)))
        if priority is not None:
            self._put(self.priorities, id, priority or None)
        self._note("rescheduled", id)
        if delay is not None or self.states[id] != "delayed":
            self._join(id, delay or 0)
        return DONE

    def _reap(self) -> Outcome[str]:
        returned, promoted, failures = self._recover()
        self._trim()
        return Outcome(
            Reason.DONE if returned or promoted or failures else Reason.EMPTY,
            failed=tuple(failures),
            returned=tuple(returned),
            promoted=tuple(promoted),
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
        self._join(id)
        self._note("redriven", id)
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

    def _recover(self) -> tuple[list[str], list[str], list[Failure]]:
        times = self.leases | self.dues
        ended = [id for id in self.order if times.get(id, RUNNING) != RUNNING]
        returned, promoted, failures = [], [], []
        for id in sorted(ended, key=lambda id: times[id]):
            self._note("promoted" if id in self.dues else "expired", id)
            if id in self.dues:
                self._join(id)
                promoted.append(id)
                continue
            self.deaths[id] = self.deaths.get(id, 0) + 1
            if self._used_up(id):
                failures.append(self._failing(id, "expired"))
            else:
                self._join(id)
                returned.append(id)
        return returned, promoted, failures

    def _leave(self, id: str) -> None:
        if id in self.states:
            self.order.remove(id)
        for facts in (self.states, self.leases, self.terms, self.dues):
            facts.pop(id, None)

    def _join(self, id: str, delay: float = 0) -> None:
        self._leave(id)
        self.order.append(id)
        self.states[id] = "delayed" if delay else "waiting"
        self._put(self.dues, id, RUNNING if delay else None)
        self.workers.pop(id, None)

    def _failing(self, id: str, reason: str) -> Failure:
        self._note("failed", id)
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
        for facts in (self.limits, self.errors, self.workers, self.priorities):
            facts.pop(id, None)
        self.own.discard(id)
        self.retired[id] = how

    def _refused(self, id: str, attempt: int, mine: bool) -> Outcome[str] | None:
        if self.states.get(id) != "in_flight":
            return Outcome(Reason(self.where(id)))
        if self.attempts[id] != attempt or not mine:
            return Outcome(Reason.STALE, attempt=self.attempts[id])
        return None

    def _full(self) -> Outcome[str] | None:
        if self.capacity is None or len(self.states) < self.capacity:
            return None
        numbers = [len(self.line()), len(self.those("delayed")), len(self.those("in_flight"))]
        return Outcome(Reason.FULL, occupancy=Occupancy(*numbers, self.capacity))

    def _due(self) -> float | None:
        """Whether there is a lease or a delay that will end, as `told` has it."""
        return RUNNING if RUNNING in (self.leases | self.dues).values() else None


def told(outcome: Outcome[Any]) -> Outcome[Any]:
    """What a queue answered, without what no model knows: when the next lease or delay ends."""
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
    comes = name in ("enqueue", "redrive", "release", "retry", "reschedule")
    waits = before.line() != after.line() and set(after.line()) >= set(before.line())
    if (comes and outcome and waits) or outcome.returned or outcome.promoted:
        assert contents.get("bell") == [b""], "whoever waits for work hears of it"
    full = after.capacity is not None and len(before.states) >= after.capacity
    if full and len(after.states) < after.capacity:
        assert contents.get("room"), "whoever waits for room hears of it"


STATES = {"w": "waiting", "r": "waiting", "d": "delayed", "f": "in_flight"}
"""The letters of the records of active jobs."""


def rank(record: Record, *, released: bool) -> int:
    """The score in RANKED of a job that waits there."""
    return -(2 * int(record.priority) + released) * 2**40 + int(record.sequence)


def observed(contents: dict[str, Any]) -> Model:
    """The model's state, read from a queue's raw keys (by part), checked for consistency."""
    data = lambda part: {k.decode(): v for k, v in contents.get(part, {}).items()}
    text = lambda part: {k: v.decode() for k, v in data(part).items()}
    names = lambda part: {id.decode() for id in contents.get(part, set())}
    scored = lambda part: {member.decode(): score for member, score in contents.get(part, [])}
    number = lambda field: int(meta[field]) if meta.get(field) else None
    meta, payloads, errors = text("meta"), text("payloads"), text("errors")
    records = {id: Record.of(record) for id, record in data("jobs").items()}
    failures, reasons = {}, {}
    for id, record in data("failures").items():
        reason, _, rest = record.partition(b" ")
        failures[id], reasons[id] = Record.of(rest), reason.decode()
    retired, cancelled = names("retired"), names("cancelled")

    everything = records | failures
    member = {id: record.member + id for id, record in everything.items()}
    state = {id: record.state[1] for id, record in everything.items()}
    by_sequence = lambda ids: sorted(ids, key=lambda id: member[id])
    in_state = lambda *states: by_sequence(id for id in everything if state[id] in states)

    # Each job is in exactly one place.
    lists = [text.decode() for part in ("front", "waiting") for text in contents.get(part, [])]
    places = [member[id] for id in in_state("w")]
    assert len(lists) == len(set(lists))
    assert lists == sorted(lists)
    assert [text for text in lists if text in places] == places
    assert places or not lists, "where no job waits in the lists they are empty"
    assert len(lists) - len(places) == int(meta.get("ghosts", 0))
    ranked = scored("ranked")
    priority = {id: int(record.priority) for id, record in everything.items()}
    assert sorted(ranked) == [member[id] for id in in_state("r")]
    released = {
        id for id in in_state("r") if ranked[member[id]] == rank(records[id], released=True)
    }
    for id in in_state("r"):
        assert id in released or ranked[member[id]] == rank(records[id], released=False)
        assert id in released or priority[id] != 0
    assert all(priority[id] == 0 for id in in_state("w"))
    leases, dues = scored("leases"), scored("delayed")
    assert sorted(leases) == [member[id] for id in in_state("f")]
    assert sorted(dues) == [member[id] for id in in_state("d")]
    states = {id: "released" if id in released else STATES[state[id]] for id in in_state(*STATES)}
    assert not records.keys() & failures.keys()
    assert in_state("x") == by_sequence(failures)
    moments = {member[id]: int(job.enqueued) + int(job.changed) for id, job in failures.items()}
    assert scored("failed") == moments
    sequences = [int(record.sequence) for record in everything.values()]
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
    assert not {"headers", "workers"} & contents.keys()
    assert len(contents.get("bell", [])) <= 1
    assert len(contents.get("room", [])) <= 64

    model = Model(
        number("capacity"),
        in_state(*STATES),
        states,
        payloads,
        failed=[name[13:] for name in scored("failed")],
        reasons=reasons,
        errors=errors,
        lease=int(meta["lease"]) / 1000 if meta.get("lease") else None,
        max_attempts=number("max_attempts"),
        keep=number("keep_count"),
        history=number("history"),
        paused=bool(number("paused")),
    )
    for id, record in everything.items():
        attempt, spent, deaths = map(int, (record.attempt, record.spent, record.deaths))
        limit = int(record.limit.rstrip("!")) if record.limit else None
        assert record.state[0] == "1"
        assert 0 <= spent <= attempt
        assert 0 <= deaths <= attempt
        if limit is not None and state[id] != "x":
            most = limit if state[id] == "f" else limit - 1
            assert spent <= most, "nothing waits that has used up the limit it was reserved under"
        claimed = bool(record.token)
        assert claimed == (state[id] == "f"), "a claim token while in flight, and only then"
        assert state[id] == "f" or not record.lease, (
            "a lease of its own while in flight, and only then"
        )
        assert state[id] in "fx" or not record.worker, "a worker only of who is, or was, in flight"
        model.attempts[id] = attempt
        end = leases.get(member[id], math.inf)
        due = dues.get(member[id])
        for facts, value, usual in (
            (model.unspent, attempt - spent, 0),
            (model.deaths, deaths, 0),
            (model.limits, limit, None),
            (model.workers, record.worker, ""),
            (model.terms, int(record.lease or 0) / 1000, 0),
            (model.leases, end if end < FAR else RUNNING, RUNNING if end == math.inf else None),
            (model.dues, due if due is None or due < FAR else RUNNING, None),
            (model.priorities, priority[id], 0),
        ):
            if value != usual:
                facts[id] = value
        if record.limit.endswith("!"):
            model.own.add(id)
    for id in retired:
        how = "failed" if id in failures else "purged"
        model.retired[id] = how if id in marks else "cancelled" if id in plain else "finished"
    return model
