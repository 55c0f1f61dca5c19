"""A state machine of single operations against the plain model, on real and fake servers."""

from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from model import Model, observed
from support import Backend, dump

from durableq import Queue, operations

IDS = st.sampled_from([f"j{i}" for i in range(12)])


class Machine(RuleBasedStateMachine):
    """Every answer and every state must be the model's, and refused calls must change nothing."""

    backend: ClassVar[Backend]
    jobs: Any = Bundle("jobs")

    @initialize(capacity=st.sampled_from([None, 0, 1, 2, 3, 7]))
    def start(self, capacity: int | None) -> None:
        self.raw = self.backend.client()
        self.queue = Queue(capacity=capacity, redis=self.raw)
        self.model = Model(capacity)
        self.before = self.dump()

    def dump(self) -> dict[str, Any]:
        return dump(self.raw, self.queue._definition.keys)

    def compare(self, name: str, *args: Any, **kwargs: Any) -> Any:
        reason = self.model.reason(name, *args)
        expected = getattr(self.model, name)(*args)
        outcome = self.queue.execute(getattr(operations, name)(*args, **kwargs))
        assert outcome.reason == reason
        job = outcome.job
        answer = job and [job.id, job.payload, job.attempt] if name == "reserve" else bool(outcome)
        assert answer == expected
        after = self.dump()
        if not outcome:
            assert after == self.before
        self.before = after
        return job

    @rule(id=IDS, payload=st.text(max_size=5))
    def enqueue(self, id: str, payload: str) -> None:
        self.compare("enqueue", id, payload)

    @rule(target=jobs)
    def reserve(self) -> Any:
        job = self.compare("reserve")
        return multiple() if job is None else job

    @rule(job=consumes(jobs), verb=st.sampled_from(["ack", "retry"]), with_token=st.booleans())
    def settle(self, job: Any, verb: str, with_token: bool) -> None:
        token = {"token": job.token} if with_token else {}
        self.compare(verb, job.id, job.attempt, **token)

    @rule(id=IDS, attempt=st.integers(-1, 4), verb=st.sampled_from(["ack", "retry"]))
    def settle_anything(self, id: str, attempt: int, verb: str) -> None:
        self.compare(verb, id, attempt)

    @rule(id=IDS)
    def cancel(self, id: str) -> None:
        self.compare("cancel", id)

    @rule(capacity=st.sampled_from([None, 0, 2, 5]))
    def configure(self, capacity: int | None) -> None:
        self.queue.configure(capacity=capacity)
        self.model.capacity = capacity
        self.before = self.dump()

    @rule()
    def forget_the_scripts(self) -> None:
        self.raw.script_flush()

    @invariant()
    def the_state_is_the_models(self) -> None:
        assert observed(self.before) == self.model

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.destroy()
            self.queue.close()
            self.raw.close()


@pytest.mark.parametrize("kind", ["embedded", "fake"])
def test_the_queue_is_the_model(request: pytest.FixtureRequest, kind: str) -> None:
    class Here(Machine):
        backend = request.getfixturevalue(kind)

    run_state_machine_as_test(Here, settings=settings(max_examples=100, stateful_step_count=40))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedded", "redis7", "fake"])
def test_the_queue_is_the_model_at_length(request: pytest.FixtureRequest, kind: str) -> None:
    class Here(Machine):
        backend = request.getfixturevalue(kind)

    run_state_machine_as_test(Here, settings=settings(max_examples=400, stateful_step_count=60))
