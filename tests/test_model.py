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

    @rule(id=IDS, payload=st.text(max_size=5), max_attempts=LIMITS)
    def enqueue(self, id: str, payload: str, max_attempts: int | None) -> None:
        self.compare("enqueue", id, payload, max_attempts=max_attempts)

    @rule(
        target=jobs,
        lease=LEASES,
        max_attempts=LIMITS,
        worker=st.sampled_from([None, "worker-1"]),
    )
    def reserve(self, **kwargs: Any) -> Any:
        job = self.compare("reserve", **kwargs)
        return multiple() if job is None else job

    @rule(job=consumes(jobs), verb=ENDINGS, with_token=st.booleans(), error=ERRORS, lease=LEASES)
    def settle(
        self, job: Any, verb: str, with_token: bool, error: str | None, lease: float | None
    ) -> None:
        kwargs: dict[str, Any] = {"token": job.token} if with_token else {}
        if verb in ("retry", "fail"):
            kwargs["error"] = error
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

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data(), at=st.integers(1, 3))
    def expire(self, data: Any, at: int) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.leases)))
        self.model.expire(id, at)
        members = [member for member, _ in self.before["leases"] if member[13:] == id.encode()]
        self.raw.zadd(self.key("leases"), {members[0]: at})
        self.before = self.dump()

    @precondition(lambda self: RUNNING in self.model.leases.values())
    @rule()
    def expire_all(self) -> None:
        """As after a night in which nobody worked."""
        for member, end in self.before["leases"]:
            if end != float("inf"):
                self.raw.zadd(self.key("leases"), {member: 2})
                self.model.expire(member[13:].decode(), 2)
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
        name = data.draw(st.sampled_from(["reserve", "ack", "retry", "fail", "release", "cancel"]))
        # That a record is dropped at once is seen by the next call, not by the rest of the batch.
        if name != "reserve" and self.model.keep is not None:
            return
        for _ in range(data.draw(st.integers(2, 4))):
            args: tuple[Any, ...] = ()
            if name != "reserve":
                id = data.draw(st.sampled_from([*self.model.active(), "j0", "j1"]))
                attempt = self.model.attempts.get(id, 1)
                args = (id,) if name == "cancel" else (id, attempt)
            batch.append(getattr(operations, name)(*args))
            expected.append(self.model.run(name, *args))
        outcomes = self.queue.execute(batch)
        if name == "reserve":
            # The first of them tells of all that had used up their attempts.
            assert [outcome.job for outcome in outcomes] == [there.job for there in expected]
            failed = [failure for there in expected for failure in there.failed]
            assert list(outcomes[0].failed) == failed
        else:
            assert outcomes == expected
        after = self.dump()
        if not any(outcomes) and not outcomes[0].failed:
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
        assert self.queue.wait_for(id, timeout=0) == self.model.where(id)
        assert self.queue.join(timeout=0) == (not self.model.active())
        assert self.dump() == self.before

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
