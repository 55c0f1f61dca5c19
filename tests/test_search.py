"""Every state that one or two ids can reach, and every operation from each of them.

Breadth first from the empty queue, to closure within bounds: see `SPACES`. A state is what the
plain model says, and what the lists look like, ghosts included; it is put back on the server by
RESTORE of the keys' own dumps. From each, every operation is run, and every lease and delay is let
end, and must answer and leave what the model says; a refused one must leave every key, to the byte,
as it was. No time passes: a lease or delay that runs ends in the far future; one that has ended did
so in 1970.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest
import redis
from model import FAR, Model, check_hints, observed, told
from support import Backend, Record, dump

from durableq import Queue, operations
from durableq.keys import PARTS

LATER = 4_000_000_000_000
"""In milliseconds; every lease or delay that runs is given this end."""

MOST_GHOSTS = 1
"""States with more of them are reached, and not gone on from: a job may be rescheduled for ever."""

Step = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Space:
    """What to search: the bounds, and the operations that are tried in every state."""

    name: str
    ids: tuple[str, ...]
    capacity: int | None
    most_attempts: int
    enqueues: tuple[dict[str, Any], ...] = ({},)
    retries: tuple[dict[str, Any], ...] = ({},)
    reschedules: tuple[dict[str, Any], ...] = ()
    reserves: tuple[dict[str, Any], ...] = ({"lease": 3600},)
    redrives: tuple[dict[str, Any], ...] = ({},)
    ends: tuple[int, ...] = (1,)
    """When leases end: one with a lower number earlier."""
    settings: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def all(self) -> list[Step]:
        some = (*self.ids, "never")
        attempts = range(self.most_attempts + 2)
        kinds = {"ack": ({},), "fail": ({},), "release": ({},), "extend": ({"lease": 3600},)}
        held = [
            (verb, (id, attempt), kwargs)
            for verb, several in (kinds | {"retry": self.retries}).items()
            for kwargs in several
            for id in some
            for attempt in attempts
        ]
        return [
            ("reap", (), {}),
            ("redrive_all", (), {}),
            ("purge_failed", (), {}),
            *(("reserve", (), kwargs) for kwargs in self.reserves),
            *(("enqueue", (id, id.upper()), kwargs) for id in self.ids for kwargs in self.enqueues),
            *(("cancel", (id,), {}) for id in some),
            *(("redrive", (id,), kwargs) for id in some for kwargs in self.redrives),
            *(("reschedule", (id,), kwargs) for id in some for kwargs in self.reschedules),
            *(("expire", (id, end), {}) for id in self.ids for end in self.ends),
            *held,
        ]

    def next(self, state: Model) -> list[tuple[Step, Any, Model]]:
        """Every step, with what it answers and leads to by the model; none beyond the bounds.

        Of a step that changes nothing it is `state` itself.
        """
        found = []
        model = state.copy()
        for step in self.all:
            name, args, kwargs = step
            if name == "expire" and args[0] not in state.leases | state.dues:
                continue
            if name in ("redrive_all", "purge_failed", "expire"):
                answer = getattr(model, name)(*args)
            else:
                answer = model.run(name, *args, **kwargs)
            if not answer and name != "expire" and vars(model) == vars(state):
                found.append((step, answer, state))
                continue
            if max(model.attempts.values(), default=0) <= self.most_attempts:
                found.append((step, answer, model))
            model = state.copy()
        return found


SPACES = [
    *(Space(f"capacity-{number}", ("a", "b"), number, 2) for number in (0, 1)),
    Space("two-ids", ("a", "b"), 2, 2, settings={"max_attempts": 2}),
    Space("two-ends", ("a", "b"), None, 1, ends=(1, 2), enqueues=({}, {"max_attempts": 1})),
    Space(
        "one-id-deep",
        ("a",),
        1,
        4,
        enqueues=({}, {"max_attempts": 2}),
        reserves=({}, {"lease": 3600}, {"lease": 3600, "max_attempts": 1}),
        redrives=({}, {"max_attempts": 1}),
    ),
    Space(
        "one-id-later",
        ("a",),
        1,
        3,
        enqueues=({}, {"priority": 1}, {"delay": 3600}, {"priority": -1, "delay": 3600}),
        retries=({}, {"delay": 3600}),
        reschedules=({"delay": 0}, {"delay": 3600}, {"priority": 0}, {"priority": -1}),
    ),
    Space(
        "two-ids-later",
        ("a", "b"),
        None,
        1,
        enqueues=({}, {"delay": 3600}),
        retries=({"delay": 3600},),
        reschedules=({"delay": 0}, {"delay": 3600}),
    ),
    Space(
        "two-ranks",
        ("a", "b"),
        2,
        1,
        enqueues=({}, {"priority": -1}),
        reschedules=({"priority": 0}, {"priority": 1}),
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


def shape(contents: dict[str, Any]) -> tuple[Any, ...]:
    """What the model does not see: where in the lists ghosts are, and of whom."""
    records = {id: Record.of(text) for id, text in contents.get("jobs", {}).items()}
    live = {job.member.encode() + id for id, job in records.items() if job.state == "1w"}
    return tuple(
        tuple((text[13:], text in live) for text in contents.get(part, ()))
        for part in ("front", "waiting")
    )


class Search:
    """A search through a space, on a server."""

    def __init__(self, space: Space, raw: redis.Redis, queue: Queue) -> None:
        self.space, self.raw, self.queue = space, raw, queue
        self.keys = queue._definition.keys
        self.models: set[Any] = set()
        self.states: set[Any] = set()
        self.steps = 0

    def run(self) -> None:
        frontier = [(self.start(), snapshot(self.raw, self.keys))]
        while frontier:
            state, saved = frontier.pop(0)
            restore(self.raw, self.keys, saved)
            saved = snapshot(self.raw, self.keys)  # a restored hash may be of another encoding
            refused: dict[str, list[Any]] = {}
            for step, answer, model in self.space.next(state):
                self.steps += 1
                if model is state:
                    refused.setdefault(step[0], []).append((step, answer))
                    continue
                contents = self.effective(state, step, answer, model)
                seen = model.state(), shape(contents)
                if seen not in self.states:
                    self.states.add(seen)
                    self.models.add(seen[0])
                    if sum(not stands for part in seen[1] for _, stands in part) <= MOST_GHOSTS:
                        frontier.append((model, snapshot(self.raw, self.keys)))
                restore(self.raw, self.keys, saved)
            self.refusals(state, refused)
            assert snapshot(self.raw, self.keys) == saved, (state, "a refused one changed it")

    def start(self) -> Model:
        start = Model(self.space.capacity, **self.space.settings)
        self.models.add(start.state())
        self.states.add((start.state(), shape({})))
        return start

    def effective(self, state: Model, step: Step, answer: Any, model: Model) -> dict[str, Any]:
        """Run a step that changes something; return the queue's contents, free of times."""
        name, args, kwargs = step
        key = dict(zip(PARTS, self.keys, strict=True))
        context = (state, step)
        if name == "expire":
            part = key["leases" if args[0] in state.leases else "delayed"]
            members = self.raw.zrange(part, 0, -1)
            mine = [member for member in members if member[13:].decode() == args[0]]
            self.raw.zadd(part, {mine[0]: args[1]})
        elif name in ("redrive_all", "purge_failed"):
            assert getattr(self.queue, name)() == answer, context
        else:
            outcome = self.queue.execute(getattr(operations, name)(*args, **kwargs))
            assert told(outcome) == answer, context
        contents = dump(self.raw, self.keys)
        assert observed(contents).state() == model.state(), context
        if name not in ("redrive_all", "purge_failed", "expire"):
            check_hints(name, outcome, state, model, contents)

        pipe = self.raw.pipeline(transaction=False)
        for part in ("leases", "delayed"):
            for member, end in contents.get(part, []):
                if FAR < end < float("inf"):
                    pipe.zadd(key[part], {member: LATER})
        pipe.delete(key["bell"], key["room"])  # each step must ring by itself
        pipe.execute()
        return contents

    def refusals(self, state: Model, refused: dict[str, list[Any]]) -> None:
        """Run those steps that must change nothing, those of a kind in one call where they may."""
        for name, steps in refused.items():
            if name in ("redrive_all", "purge_failed"):
                assert getattr(self.queue, name)() == 0, state
                continue
            made = [getattr(operations, name)(*args, **kwargs) for (_, args, kwargs), _ in steps]
            if name in ("reserve", "reap"):
                outcomes = [self.queue.execute(operation) for operation in made]
            else:
                outcomes = self.queue.execute(made)
            for outcome, (step, answer) in zip(outcomes, steps, strict=True):
                assert told(outcome) == answer, (state, step)


LONG = ("one-id-later", "two-ids", "two-ends", "two-ids-later", "two-ranks")


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(space, id=space.name, marks=[pytest.mark.slow] if space.name in LONG else [])
        for space in SPACES
    ],
)
def test_every_reachable_state_and_every_step_is_the_models(
    embedded: Backend, space: Space, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        embedded.client() as raw,
        Queue(capacity=space.capacity, redis=raw, **space.settings) as queue,
    ):
        search = Search(space, raw, queue)
        search.run()
        queue.destroy()

    assert search.models == reachable(space)
    with capsys.disabled():
        print(f"\n  {space.name}: {len(search.states)} states, {search.steps} steps", end="")


def reachable(space: Space) -> set[Any]:
    """The states that the model has by itself: the search must have visited each of them."""
    start = Model(space.capacity, **space.settings)
    seen, frontier = {start.state()}, [start]
    while frontier:
        before = frontier.pop()
        for _, _, model in space.next(before):
            if model is not before and (state := model.state()) not in seen:
                seen.add(state)
                frontier.append(model)
    return seen
