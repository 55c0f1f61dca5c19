"""A state machine of single operations against the plain model, on real and fake servers."""

from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model import RUNNING, Model, check_hints, observed, told
from support import Backend, dump

from durableq import Queue, operations
from durableq.keys import PARTS
from durableq.operations import Operation

IDS = st.sampled_from([f"j{i}" for i in range(5)])
LIMITS = st.sampled_from([None, 1, 2])
LEASES = st.sampled_from([None, 3600])
ERRORS = st.sampled_from([None, "broken", "broken again"])
DELAYS = st.sampled_from([None, 0, 3600])
PRIORITIES = st.sampled_from([0, 0, 0, 5, -5])
ENDINGS = st.sampled_from(["ack", "retry", "fail", "release", "extend"])


class Machine(RuleBasedStateMachine):
    """Every answer and every state must be the model's, and refused calls must change nothing."""

    backend: ClassVar[Backend]
    jobs: Any = Bundle("jobs")

    @initialize(
        capacity=st.sampled_from([None, 0, 1, 2, 3]),
        lease=LEASES,
        max_attempts=LIMITS,
        keep=st.sampled_from([None, None, 0, 2]),
        history=st.sampled_from([None, 20]),
    )
    def start(self, capacity: int | None, **others: Any) -> None:
        self.raw = self.backend.client()
        keep = others.pop("keep")
        self.queue = Queue(capacity=capacity, keep_failed=keep, redis=self.raw, **others)
        self.model = Model(capacity, keep=keep, **others)
        self.before = self.dump()

    def dump(self) -> dict[str, Any]:
        return dump(self.raw, self.queue._definition.keys)

    def key(self, part: str) -> bytes:
        return self.queue._definition.keys[PARTS.index(part)]

    def compare(self, name: str, *args: Any, token: str | None = None, **kwargs: Any) -> Any:
        """Run an operation on both; a token of None or a right one is no matter to the model."""
        if token is not None:
            kwargs["token"] = token
        known = {word: value for word, value in kwargs.items() if word != "token"}
        if token == "nobody's":
            known["mine"] = False
        before = self.model.copy()
        expected = self.model.run(name, *args, **known)
        outcome = self.queue.execute(getattr(operations, name)(*args, **kwargs))
        assert told(outcome) == expected
        after = self.dump()
        if outcome:
            check_hints(name, outcome, before, self.model, after)
        elif self.model.state() == before.state():
            assert after == self.before, "a refused operation changes nothing"
        else:
            # What a reserve failed or recovered, or a reap dropped, without finding a job.
            assert name in ("reserve", "reap")
        self.before = after
        return outcome.job

    def changed(self, result: Any, expected: Any) -> None:
        """Check what is no operation of `execute`."""
        assert result == expected
        after = self.dump()
        if not result:
            assert after == self.before
        self.before = after

    @rule(
        id=IDS,
        payload=st.text(max_size=5),
        priority=PRIORITIES,
        delay=DELAYS,
        max_attempts=LIMITS,
    )
    def enqueue(self, id: str, payload: str, **kwargs: Any) -> None:
        self.compare("enqueue", id, payload, **kwargs)

    @rule(
        target=jobs,
        lease=LEASES,
        max_attempts=LIMITS,
        worker=st.sampled_from([None, "worker-1"]),
    )
    def reserve(self, **kwargs: Any) -> Any:
        job = self.compare("reserve", **kwargs)
        return multiple() if job is None else job

    @rule(
        job=consumes(jobs),
        verb=ENDINGS,
        with_token=st.booleans(),
        error=ERRORS,
        lease=LEASES,
        delay=DELAYS,
    )
    def settle(
        self,
        job: Any,
        verb: str,
        with_token: bool,
        error: str | None,
        lease: float | None,
        delay: float | None,
    ) -> None:
        kwargs: dict[str, Any] = {"token": job.token} if with_token else {}
        if verb in ("retry", "fail"):
            kwargs["error"] = error
        if verb == "retry":
            kwargs["delay"] = delay
        if verb == "extend":
            kwargs["lease"] = lease
        self.compare(verb, job.id, job.attempt, **kwargs)

    @rule(job=jobs, lease=LEASES)
    def extend(self, job: Any, lease: float | None) -> None:
        self.compare("extend", job.id, job.attempt, lease, token=job.token)

    @rule(id=IDS, attempt=st.integers(-1, 4), verb=ENDINGS, wrong=st.booleans())
    def settle_anything(self, id: str, attempt: int, verb: str, wrong: bool) -> None:
        self.compare(verb, id, attempt, token="nobody's" if wrong else None)

    @rule(id=IDS)
    def cancel(self, id: str) -> None:
        self.compare("cancel", id)

    @rule(id=IDS, delay=DELAYS, priority=st.none() | PRIORITIES)
    def reschedule(self, id: str, delay: float | None, priority: int | None) -> None:
        if delay is not None or priority is not None:
            self.compare("reschedule", id, delay=delay, priority=priority)

    def times(self) -> dict[str, tuple[str, bytes, float]]:
        """Of each job with a lease or a delay: the part that holds it, its member, its end."""
        return {
            member[13:].decode(): (part, member, end)
            for part in ("leases", "delayed")
            for member, end in self.before.get(part, [])
        }

    @precondition(lambda self: self.model.leases or self.model.dues)
    @rule(data=st.data(), at=st.integers(1, 3))
    def expire(self, data: Any, at: int) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.leases | self.model.dues)))
        self.model.expire(id, at)
        part, member, _ = self.times()[id]
        self.raw.zadd(self.key(part), {member: at})
        self.before = self.dump()

    @precondition(lambda self: RUNNING in (self.model.leases | self.model.dues).values())
    @rule()
    def expire_all(self) -> None:
        """As after a night in which nobody worked."""
        for id, (part, member, end) in self.times().items():
            if end != float("inf"):
                self.raw.zadd(self.key(part), {member: 2})
                self.model.expire(id, 2)
        self.before = self.dump()

    @rule()
    def reap(self) -> None:
        self.compare("reap")

    @rule(id=IDS, max_attempts=LIMITS)
    def redrive(self, id: str, max_attempts: int | None) -> None:
        self.compare("redrive", id, max_attempts=max_attempts)

    @precondition(lambda self: self.model.failed)
    @rule(data=st.data(), max_attempts=LIMITS)
    def redrive_failed(self, data: Any, max_attempts: int | None) -> None:
        id = data.draw(st.sampled_from(self.model.failed))
        self.compare("redrive", id, max_attempts=max_attempts)

    @rule(max_attempts=LIMITS)
    def redrive_all(self, max_attempts: int | None) -> None:
        expected = self.model.redrive_all(max_attempts=max_attempts)
        self.changed(self.queue.redrive_all(max_attempts=max_attempts), expected)

    @rule(older_than=st.sampled_from([0, 3600]))
    def purge_failed(self, older_than: float) -> None:
        expected = 0 if older_than else self.model.purge_failed()
        self.changed(self.queue.purge_failed(older_than=older_than), expected)

    @rule(
        change=st.one_of(
            st.fixed_dictionaries({"capacity": st.sampled_from([None, 0, 2, 5])}),
            st.fixed_dictionaries({"lease": LEASES}),
            st.fixed_dictionaries({"max_attempts": LIMITS}),
            st.fixed_dictionaries({"max_attempts": LIMITS, "lease": LEASES}),
            st.fixed_dictionaries({"keep_failed": st.sampled_from([None, 0, 1, 3])}),
        )
    )
    def configure(self, change: dict[str, Any]) -> None:
        self.queue.configure(**change)
        for name, value in change.items():
            setattr(self.model, "keep" if name == "keep_failed" else name, value)
        self.before = self.dump()

    @rule(data=st.data())
    def many_of_a_kind(self, data: Any) -> None:
        """A batch is as if its operations were run one after another."""
        batch: list[Operation] = []
        expected: list[Any] = []
        verbs = ["reserve", "ack", "retry", "fail", "release", "cancel", "reschedule"]
        name = data.draw(st.sampled_from(verbs))
        # That a record is dropped at once is seen by the next call, not by the rest of the batch.
        if name != "reserve" and self.model.keep is not None:
            return
        before = self.model.state()
        for _ in range(data.draw(st.integers(2, 4))):
            args: tuple[Any, ...] = ()
            kwargs: dict[str, Any] = {}
            if name != "reserve":
                id = data.draw(st.sampled_from([*self.model.order, "j0", "j1"]))
                attempt = self.model.attempts.get(id, 1)
                args = (id,) if name in ("cancel", "reschedule") else (id, attempt)
            if name in ("retry", "reschedule"):
                kwargs["delay"] = data.draw(st.sampled_from([0, 3600]))
            if name == "reschedule":
                kwargs["priority"] = data.draw(st.none() | PRIORITIES)
            batch.append(getattr(operations, name)(*args, **kwargs))
            expected.append(self.model.run(name, *args, **kwargs))
        outcomes = self.queue.execute(batch)
        if name == "reserve":
            # The first of them tells of all that had used up their attempts.
            assert [outcome.job for outcome in outcomes] == [there.job for there in expected]
            failed = [failure for there in expected for failure in there.failed]
            assert list(outcomes[0].failed) == failed
        else:
            assert outcomes == expected
        after = self.dump()
        if self.model.state() == before and not any(outcomes):
            assert after == self.before
        self.before = after

    @rule(id=IDS)
    def look(self, id: str) -> None:
        listed = [
            (job.id, job.payload, job.attempt, job.spent, job.deaths, job.limit, *texts)
            for job in self.queue.failed()
            for texts in [(job.reason, job.error, job.worker)]
        ]
        model = self.model
        expected = [
            (name, model.payloads[name], model.attempts[name], model.spent(name), *numbers, *texts)
            for name in reversed(model.failed)
            for numbers in [(model.deaths.get(name, 0), model.limits.get(name))]
            for texts in [
                (model.reasons[name], model.errors.get(name, ""), model.workers.get(name, ""))
            ]
        ]
        assert listed == expected
        self.look_around()
        assert self.queue.wait_for(id, timeout=0) == self.model.where(id)
        assert self.queue.join(timeout=0) == (not self.model.order)
        assert self.dump() == self.before

    def look_around(self) -> None:
        model, queue = self.model, self.queue
        counts = queue.counts()
        in_order = {"waiting": model.line(), "failed": model.failed[::-1]}
        for state in ("delayed", "in_flight"):
            times = {id: (end, member) for id, (_, member, end) in self.times().items()}
            in_order[state] = sorted(model.those(state), key=lambda id: times[id])
        for state, ids in in_order.items():
            whole = queue.jobs(state, payload=True)
            assert ([job.id for job in whole.jobs], whole.next) == (ids, None)
            first = queue.jobs(state, count=2)
            rest = queue.jobs(state, after=first.next) if first.next else None
            assert [job.id for job in (*first.jobs, *(rest.jobs if rest else ()))] == ids
            assert getattr(counts, state) == len(ids)
            for job in whole.jobs:
                assert (job.state, job.payload) == (state, model.payloads[job.id])
                assert job.priority == model.priorities.get(job.id, 0)
                assert (job.attempt, job.spent) == (model.attempts[job.id], model.spent(job.id))
                assert job == queue.get(job.id, payload=True)
                assert (job.due_at is not None) == (state == "delayed")
                assert (job.lease_ends_at is not None) == (job.id in model.leases)
        assert [job.id for job in queue.peek(3)] == model.line()[:3]
        assert (counts.oldest is None) == (not model.line())
        assert (counts.retired, counts.capacity) == (len(model.retired), model.capacity)
        assert counts.paused == model.paused
        for id in (*model.retired, *model.order, "never"):
            position = queue.position(id)
            assert (position is None) == (id not in model.line())
            if position is not None:
                assert position.at_least <= model.line().index(id) <= position.at_most
            assert (queue.get(id) is None) == (id not in (*model.order, *model.failed))
        told = [(each.event, each.id, each.attempt, each.worker) for each in queue.history()]
        assert told == (model.events[-model.history :] if model.history else [])

    @rule()
    def pause(self) -> None:
        self.changed(self.queue.pause(), self.model.pause())

    @rule()
    def resume(self) -> None:
        self.changed(self.queue.resume(), self.model.resume())

    @rule()
    def purge(self) -> None:
        self.changed(self.queue.purge(), self.model.purge())

    @rule()
    def hear(self) -> None:
        """Take all rings: the next step must leave its own."""
        self.raw.delete(self.key("bell"), self.key("room"))
        self.before = self.dump()

    @rule()
    def forget_the_scripts(self) -> None:
        self.raw.script_flush()

    @invariant()
    def the_state_is_the_models(self) -> None:
        assert observed(self.before).state() == self.model.state()

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.destroy()
            self.queue.close()
            self.raw.close()


def limits(examples: int, steps: int) -> settings:
    """How much to try; what of a failure does not matter is not explained, which takes minutes."""
    phases = set(Phase) - {Phase.explain}
    return settings(max_examples=examples, stateful_step_count=steps, phases=phases)


@pytest.mark.parametrize("kind", ["embedded", "fake"])
def test_the_queue_is_the_model(request: pytest.FixtureRequest, kind: str) -> None:
    class Here(Machine):
        backend = request.getfixturevalue(kind)

    run_state_machine_as_test(Here, settings=limits(50, 50))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedded", "fake"])
def test_the_queue_is_the_model_at_length(request: pytest.FixtureRequest, kind: str) -> None:
    class Here(Machine):
        backend = request.getfixturevalue(kind)

    run_state_machine_as_test(Here, settings=limits(200, 80))
