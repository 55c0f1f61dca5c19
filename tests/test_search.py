"""Every state that two ids can reach, and every operation from each of them.

Breadth first from the empty queue, to closure: for capacities 0, 1 and 2, two ids and attempts up
to 3. A state is what the plain model says, and what the lists look like, ghosts included; it is put
back on the server by RESTORE of the keys' own dumps. From each, every operation is run and must
answer and leave what the model says; a refused one must leave every key, to the byte, as it was.
"""

import copy
from typing import Any

import pytest
import redis
from model import Model, observed
from support import Backend, dump

from durableq import Queue, operations

IDS = ("a", "b")
MOST_ATTEMPTS = 3
OPERATIONS: list[tuple[Any, ...]] = [
    ("reserve",),
    *(("enqueue", id, id.upper()) for id in IDS),
    *(("cancel", id) for id in (*IDS, "never")),
    *(
        (verb, id, attempt)
        for verb in ("ack", "retry")
        for id in (*IDS, "never")
        for attempt in range(MOST_ATTEMPTS + 2)
    ),
]

Snapshot = list[tuple[bytes, bytes]]


def snapshot(raw: redis.Redis, keys: tuple[bytes, ...]) -> Snapshot:
    pipe = raw.pipeline(transaction=False)
    for key in keys:
        pipe.dump(key)
    return [(k, data) for k, data in zip(keys, pipe.execute(), strict=True) if data is not None]


def restore(raw: redis.Redis, keys: tuple[bytes, ...], saved: Snapshot) -> None:
    pipe = raw.pipeline(transaction=False)
    pipe.delete(*keys)
    for key, data in saved:
        pipe.restore(key, 0, data)
    pipe.execute()


def canonical(model: Model) -> tuple[Any, ...]:
    return (
        tuple(model.waiting),
        tuple(sorted(model.in_flight)),
        tuple(sorted(model.attempts.items())),
        tuple(sorted(model.retired.items())),
    )


def shape(contents: dict[str, Any]) -> tuple[Any, ...]:
    """What the model does not see: ghosts in the lists, the order of the leases, kept errors."""
    lists = [tuple(contents.get(part, ())) for part in ("front", "waiting")]
    leases = tuple(member[13:] for member, _ in sorted(contents.get("leases", [])))
    return (*lists, leases, tuple(sorted(contents.get("errors", {}))))


def search(backend: Backend, capacity: int) -> tuple[set[Any], int, int]:
    """Return the model's states that were visited, the number of all states, and that of steps."""
    with backend.client() as raw, Queue(capacity=capacity, redis=raw) as queue:
        keys = queue._definition.keys
        start = Model(capacity)
        models = {canonical(start)}
        seen = {(canonical(start), shape({}))}
        frontier = [(start, snapshot(raw, keys))]
        steps = 0
        while frontier:
            state, saved = frontier.pop(0)
            restore(raw, keys, saved)
            for name, *args in OPERATIONS:
                head = state.waiting[0] if name == "reserve" and state.waiting else None
                if head and state.attempts[head] == MOST_ATTEMPTS:
                    continue
                model = copy.deepcopy(state)
                reason = model.reason(name, *args)
                expected = getattr(model, name)(*args)
                outcome = queue.execute(getattr(operations, name)(*args))
                steps += 1

                context = (state, name, args, outcome)
                assert outcome.reason == reason, context
                job = outcome.job
                answer: Any = bool(outcome)
                if name == "reserve":
                    answer = job and [job.id, job.payload, job.attempt]
                assert answer == expected, context
                after = snapshot(raw, keys)
                if not outcome:
                    assert after == saved, context
                    continue
                contents = dump(raw, keys)
                assert observed(contents) == model, context
                state_after = (canonical(model), shape(contents))
                if state_after not in seen:
                    seen.add(state_after)
                    models.add(canonical(model))
                    frontier.append((model, after))
                restore(raw, keys, saved)
        queue.destroy()
    return models, len(seen), steps


@pytest.mark.parametrize("capacity", [0, 1, 2])
def test_every_reachable_state_and_every_step_is_the_models(
    embedded: Backend, capacity: int, capsys: pytest.CaptureFixture[str]
) -> None:
    models, states, steps = search(embedded, capacity)

    assert models == reachable(capacity)
    with capsys.disabled():
        print(f"\n  capacity {capacity}: {states} states, {steps} steps", end="")


def reachable(capacity: int) -> set[Any]:
    """The states that the model has by itself: the search must have visited each of them."""
    start = Model(capacity)
    seen, frontier = {canonical(start)}, [start]
    while frontier:
        state = frontier.pop()
        for name, *args in OPERATIONS:
            model = copy.deepcopy(state)
            getattr(model, name)(*args)
            within = all(attempt <= MOST_ATTEMPTS for attempt in model.attempts.values())
            if within and canonical(model) not in seen:
                seen.add(canonical(model))
                frontier.append(model)
    return seen
