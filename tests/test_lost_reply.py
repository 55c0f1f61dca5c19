"""Whatever is lost between client and server: one effect, and the true answer."""

import asyncio
import os
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from model import Model, observed
from proxy import Proxy
from support import Backend, Blocking, Lab

from durableq import (
    Job,
    OutcomeUnknown,
    Queue,
    Reason,
    RequestRefused,
    ServerUnavailable,
    operations,
    policy,
)
from durableq.scripts import script

Step = tuple[Any, ...]

VERBS = ["enqueue", "reserve", "ack", "retry", "cancel", "fail", "release", "extend", "redrive"]
VERBS += ["reschedule"]
AGAIN = ("reserve", "extend", "reschedule")
"""What may take effect a second time."""

EFFECTIVE: list[Step] = [
    ("enqueue", "new", "of new"),
    ("reserve",),
    ("ack", "held", 1),
    ("retry", "held", 1),
    ("cancel", "held"),
    ("cancel", "next"),
    ("fail", "held", 1),
    ("release", "held", 1),
    ("extend", "held", 1),
    ("redrive", "dead"),
    ("retry", "held", 1, {"delay": 3600}),
    ("enqueue", "new", "of new", {"priority": 5}),
    ("enqueue", "new", "of new", {"delay": 3600}),
    ("reschedule", "next", {"priority": -1}),
    ("reschedule", "next", {"delay": 3600}),
    ("reschedule", "next", {"delay": 0}),
]
REFUSED: list[Step] = [
    ("enqueue", "next", "of next"),
    ("enqueue", "held", "another payload"),
    ("enqueue", "finished", ""),
    ("enqueue", "cancelled", ""),
    ("ack", "held", 2),
    ("ack", "next", 1),
    ("ack", "finished", 1),
    ("retry", "held", 0),
    ("retry", "cancelled", 1),
    ("cancel", "finished"),
    ("cancel", "nobody"),
    ("enqueue", "dead", "again"),
    ("fail", "next", 1),
    ("release", "held", 2),
    ("extend", "finished", 1),
    ("redrive", "held"),
    ("redrive", "nobody"),
    ("reschedule", "held", {"delay": 1}),
    ("reschedule", "cancelled", {"priority": 1}),
]
MIX: list[Step] = [  # with room for two jobs
    ("enqueue", "a", "of a"),
    ("enqueue", "b", "of b"),
    ("enqueue", "c", "of c"),  # full
    ("enqueue", "a", "of a"),  # active
    ("reserve",),
    ("ack", "a", 1),
    ("enqueue", "d", "of d"),
    ("cancel", "nobody"),
    ("enqueue", "b", "another"),  # active
    ("reserve",),
    ("retry", "b", 1),
    ("cancel", "d"),
    ("enqueue", "e", "of e"),
    ("ack", "b", 1),  # waiting
    ("reserve",),
    ("reserve",),
    ("reserve",),  # empty
    ("ack", "b", 2),
    ("enqueue", "a", "of a"),  # finished
    ("retry", "e", 1),
    ("enqueue", "f", "of f"),
    ("reserve",),
]


def title(step: Step) -> str:
    return "-".join(map(str, step[:2]))


each_effective = pytest.mark.parametrize("step", EFFECTIVE, ids=title)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every resend comes at once; the tries so far are kept."""
    made: list[int] = []

    def pause(tries: int, chance: float) -> float:
        made.append(tries)
        return 0.001

    monkeypatch.setattr(policy, "resend_pause", pause)
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "PATIENCE", 0.005)


@pytest.fixture
def proxy(real: Backend) -> Iterator[Proxy]:
    with Proxy(real.url) as proxy:
        yield proxy


@pytest.fixture(params=["sync", "async"])
def far(request: pytest.FixtureRequest, real: Backend, proxy: Proxy) -> Iterator[Lab]:
    """A lab on the far side of the proxy; its look at the keys is a direct one."""
    lab = Lab(Backend(real.name, proxy.url, **real.options), request.param == "async")
    lab.raw.close()
    lab.raw = real.client()
    looks = ["counts", "get", "jobs", "position", "history"]
    for name in [*VERBS, "open", "settings", "configure", "pause", "purge", *looks]:
        lab.raw.script_load(script(name).text)  # a fault is to hit what runs
    yield lab
    proxy.come_back()
    lab.end()


def split(step: Step) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """The verb of a step, its arguments, and those given by name, which may come last."""
    named = step[-1] if isinstance(step[-1], dict) else None
    return (step[0], step[1:], {}) if named is None else (step[0], step[1:-1], named)


def operation(step: Step) -> operations.Operation:
    verb, args, named = split(step)
    return getattr(operations, verb)(*args, **named)


def reason(model: Model, step: Step) -> str:
    verb, args, named = split(step)
    return model.reason(verb, *args, **named)


def furnished(lab: Lab, **settings: Any) -> tuple[Any, Model]:
    """A queue with jobs of every state and room for one more, and its model."""
    queue, model = lab.queue(capacity=4, **settings), Model(4)
    steps: list[Step] = [
        ("enqueue", "finished", ""),
        ("reserve",),
        ("ack", "finished", 1),
        ("enqueue", "cancelled", ""),
        ("cancel", "cancelled"),
        ("enqueue", "dead", "of dead"),
        ("reserve",),
        ("fail", "dead", 1),
        ("enqueue", "held", "of held"),
        ("reserve",),
        ("enqueue", "next", "of next"),
        ("enqueue", "last", "of last"),
    ]
    assert all(queue.execute(list(map(operation, steps))))
    for name, *args in steps:
        assert getattr(model, name)(*args)
    return queue, model


def ask(target: Any, step: Step, **more: Any) -> Any:
    """Run a step on a queue or a model; a job is told as the model tells it."""
    verb, args, named = split(step)
    answer = getattr(target, verb)(*args, **named, **more)
    return [answer.id, answer.payload, answer.attempt] if isinstance(answer, Job) else answer


def check(queue: Any, model: Model, step: Step, **more: Any) -> None:
    answer, expected = ask(queue, step, **more), ask(model, step)
    assert answer == expected
    assert type(answer) is type(expected)


def jobs(lab: Lab, queue: Any) -> dict[str, Any]:
    """Everything but the receipts: a call that was sent again leaves one even if refused."""
    return {part: value for part, value in lab.dump(queue).items() if part != "receipts"}


def state(lab: Lab, queue: Any) -> Model:
    return observed(lab.dump(queue))


# One call


def own(lab: Lab, proxy: Proxy, **options: Any) -> Any:
    """A user's own client, by its constructor, which resends by itself."""
    kind = redis.asyncio.Redis if lab.asynchronous else redis.Redis
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # retry_on_timeout
        client = kind(host="127.0.0.1", port=proxy.port, **options)
    lab._clients.append(client)
    return client


CLIENTS: dict[str, Callable[[Lab, Proxy], Any]] = {
    "url": lambda lab, proxy: proxy.url,
    "url-retry_on_timeout": lambda lab, proxy: f"{proxy.url}?retry_on_timeout=true",
    "from_url": lambda lab, proxy: lab.client(),
    "defaults": own,
    "retry_on_timeout": lambda lab, proxy: own(lab, proxy, retry_on_timeout=True),
    "decode_responses": lambda lab, proxy: own(lab, proxy, decode_responses=True),
    "single_connection": lambda lab, proxy: own(lab, proxy, single_connection_client=True),
    "health_check": lambda lab, proxy: own(lab, proxy, health_check_interval=1),
    "protocol-2": lambda lab, proxy: own(lab, proxy, protocol=2),
    "protocol-3": lambda lab, proxy: own(lab, proxy, protocol=3),
    "shared": lambda lab, proxy: lab.queue(redis=proxy.url).client,
}


USUAL = ["url", "from_url", "defaults", "retry_on_timeout", "decode_responses"]


@pytest.mark.parametrize(
    ("client", "step"),
    [
        *((client, step) for client in USUAL for step in EFFECTIVE),
        *((client, ("reserve",)) for client in CLIENTS if client not in USUAL),
    ],
    ids=lambda value: value if isinstance(value, str) else title(value),
)
def test_a_lost_reply_has_one_effect_and_the_true_answer(
    far: Lab, proxy: Proxy, client: str, step: Step
) -> None:
    queue, model = furnished(far, redis=CLIENTS[client](far, proxy))
    proxy.seen.clear()
    proxy.fault(step[0])

    check(queue, model, step)

    assert state(far, queue) == model
    assert [name for name in proxy.seen if name in VERBS] == [step[0]] * 2


@each_effective
def test_a_lost_request_has_one_effect_and_the_true_answer(
    far: Lab, proxy: Proxy, step: Step
) -> None:
    queue, model = furnished(far)
    fault = proxy.fault(step[0], delivered=False)

    check(queue, model, step)

    assert fault.hits == 1
    assert state(far, queue) == model


@pytest.mark.parametrize(
    ("step", "options"),
    [*((step, {}) for step in EFFECTIVE[:5]), (("reserve",), {"retry_on_timeout": True})],
    ids=str,
)
def test_a_reply_that_does_not_come_is_fetched_again(
    far: Lab, proxy: Proxy, step: Step, options: dict[str, Any]
) -> None:
    client = own(far, proxy, socket_timeout=0.2, **options)
    queue, model = furnished(far, redis=client)
    fault = proxy.fault(step[0], hang=True)

    check(queue, model, step)

    assert fault.hits == 1
    assert state(far, queue) == model


@each_effective
def test_several_lost_replies_in_a_row_have_one_effect(far: Lab, proxy: Proxy, step: Step) -> None:
    queue, model = furnished(far)
    proxy.fault(step[0], times=2)
    proxy.fault("hello", times=2)
    proxy.fault(step[0], times=2, delivered=False)
    proxy.fault(step[0], times=2, kept=3)

    check(queue, model, step)

    assert proxy.seen.count(step[0]) > 6
    assert state(far, queue) == model


@pytest.mark.parametrize("verb", VERBS)
def test_a_reply_cut_at_any_byte_has_one_effect(far: Lab, proxy: Proxy, verb: str) -> None:
    queue, model = far.queue(), Model(None)
    numbers = iter(range(10_000))

    def prepared() -> Step:
        """What the verb is to be called with, with a job there for it to act on."""
        id = f"job-{next(numbers):04}"
        if verb == "enqueue":
            return ("enqueue", id, "its payload")
        if verb == "redrive":
            for other in list(model.waiting):
                check(queue, model, ("cancel", other))
            for step in (("enqueue", id, ""), ("reserve",), ("fail", id, 1)):
                check(queue, model, step)
            return ("redrive", id)
        check(queue, model, ("enqueue", id, "its payload"))
        if verb == "reserve":
            return ("reserve",)
        held = ask(queue, ("reserve",))
        assert held == ask(model, ("reserve",))
        if verb == "reschedule":
            assert queue.retry(*held[::2])
            assert model.retry(*held[::2])
            return (verb, held[0], {"delay": 3600})
        return (verb, held[0]) if verb == "cancel" else (verb, held[0], held[2])

    whole = proxy.fault(verb, harmless=True)
    check(queue, model, prepared())

    assert len(whole.reply) > 10
    for length in range(len(whole.reply)):
        step = prepared()
        cut = proxy.fault(verb, kept=length)
        check(queue, model, step)
        assert cut.hits == 1
        assert cut.reply.startswith(whole.reply[:8])
        assert len(cut.reply) == len(whole.reply)
    assert state(far, queue) == model


@pytest.mark.parametrize("step", REFUSED, ids=title)
def test_a_lost_refusal_is_refused_truly(far: Lab, proxy: Proxy, step: Step) -> None:
    queue, model = furnished(far)
    before, why = jobs(far, queue), reason(model, step)

    for delivered in (True, False):
        proxy.fault(step[0], delivered=delivered)
        check(queue, model, step)
        assert jobs(far, queue) == before

        proxy.fault(step[0], delivered=delivered)
        assert queue.execute(operation(step)).reason == why
        assert jobs(far, queue) == before


def test_a_lost_full_is_full(far: Lab, proxy: Proxy) -> None:
    queue, model = furnished(far)
    check(queue, model, ("enqueue", "new", ""))
    before = jobs(far, queue)
    proxy.fault("enqueue")

    outcome = queue.execute(operations.enqueue("newer", ""))

    assert outcome.reason is Reason.FULL
    assert outcome.occupancy is not None
    assert (outcome.occupancy.waiting, outcome.occupancy.in_flight) == (3, 1)
    assert jobs(far, queue) == before


def test_a_lost_empty_is_empty(far: Lab, proxy: Proxy) -> None:
    queue = far.queue()
    queue.enqueue("a")
    queue.reserve()
    before = jobs(far, queue)
    proxy.fault("reserve")

    assert queue.reserve() is None

    assert jobs(far, queue) == before


def test_a_new_call_is_a_repeat_and_refused(far: Lab, proxy: Proxy) -> None:
    for step in EFFECTIVE:
        queue, model = furnished(far)
        proxy.fault(step[0])
        check(queue, model, step)
        check(queue, model, step)
        assert reason(model, step) != "done" or step[0] in AGAIN
        assert state(far, queue) == model


BATCHES = ["enqueue", "reserve", "extend", "retry", "ack", "cancel"]
"""The operations that come in batches, in an order in which each finds something to do."""


def many(queue: Any, verb: str, ids: list[str], jobs: list[Any], **more: Any) -> list[Any]:
    if verb == "enqueue":
        return queue.enqueue_many([(id, f"of {id}") for id in ids], **more)
    if verb == "reserve":
        return queue.reserve_many(len(ids), **more)
    return getattr(queue, f"{verb}_many")(ids if verb == "cancel" else jobs, **more)


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("skip", [0, 1])
def test_a_lost_chunk_of_a_batch_has_one_effect_and_the_true_answer(
    far: Lab, proxy: Proxy, delivered: bool, skip: int
) -> None:
    queue, ids = far.queue(), [f"job-{number:04}" for number in range(600)]
    jobs: list[Any] = []
    for verb in BATCHES:
        fault = proxy.fault(verb, skip=skip, times=2, delivered=delivered)

        answers = many(queue, verb, ids, jobs)

        assert fault.hits == 2
        if verb == "reserve":
            assert [(job.id, job.payload) for job in answers] == [(id, f"of {id}") for id in ids]
            jobs = answers
        else:
            assert answers == [True] * len(ids)
        if verb == "retry":
            jobs = queue.reserve_many(len(ids))
            assert [(job.id, job.attempt) for job in jobs] == [(id, 2) for id in ids]
        if verb == "ack":
            ids = [f"more-{number:04}" for number in range(600)]
            many(queue, "enqueue", ids, [])
    assert queue.counts().retired == 1200


@pytest.mark.parametrize("verb", BATCHES)
def test_a_batch_whose_outcome_is_unknown_is_taken_up_again(
    far: Lab, proxy: Proxy, impatient: None, verb: str
) -> None:
    queue, ids = far.queue(), [f"job-{number:04}" for number in range(600)]
    jobs: list[Any] = []
    if verb != "enqueue":
        many(queue, "enqueue", ids, [])
    if verb in ("extend", "retry", "ack"):
        jobs = many(queue, "reserve", ids, [])
    proxy.fault(verb, skip=1, after=proxy.go)

    with pytest.raises(OutcomeUnknown) as caught:
        many(queue, verb, ids, jobs)

    proxy.come_back()
    done = len(caught.value.outcomes)
    assert done == (100 if verb == "reserve" else 0)  # what is sent together is in doubt together
    rest = many(queue, verb, ids[done:], jobs[done:], request=caught.value.request)
    if verb == "reserve":
        held = [outcome.job for outcome in caught.value.outcomes] + rest
        assert [job.id for job in held] == ids
        assert queue.counts().in_flight == 600
    else:
        assert rest == [True] * (600 - done)


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("name", ["ack", "retry", "reserve"])
def test_a_lost_turn_has_one_effect_and_the_true_answer(
    far: Lab, proxy: Proxy, name: str, delivered: bool
) -> None:
    queue, ids = far.queue(), [f"job-{number:02}" for number in range(12)]
    many(queue, "enqueue", ids, [])
    first = queue.reserve_many(4)
    fault = proxy.fault(name, times=2, delivered=delivered)

    turn = queue.exchange([*first[:2], *(operations.retry(job.id, 1) for job in first[2:])], 4)

    assert fault.hits == 2
    assert all(turn.settled)
    assert [job.id for job in turn.jobs] == ids[4:8]
    assert [job.id for job in queue.reserve_many(9)] == [*ids[8:], *ids[2:4]]


@pytest.mark.parametrize("gone", ["used up", "ended"])
def test_a_lost_reserve_that_only_cleared_the_way_is_followed_by_another(
    far: Lab, proxy: Proxy, gone: str
) -> None:
    queue, ids = far.queue(), [f"job-{i:03}" for i in range(66)]
    queue.execute([operations.enqueue(id) for id in ids])
    limit = 1 if gone == "ended" else None
    queue.execute([operations.reserve(lease=60, max_attempts=limit)] * (len(ids) - 1))
    queue.execute(operations.reserve(lease=60))
    if gone == "used up":
        queue.execute([operations.retry(id, 1) for id in ids])
        queue.configure(max_attempts=1)
        last = "good"
        assert queue.enqueue(last)
    else:
        last = ids[-1]
        leases = far.key(queue, "leases")
        members = sorted(far.raw.zrange(leases, 0, -1))
        far.raw.zadd(leases, {member: i for i, member in enumerate(members)})
    fault = proxy.fault("reserve", times=3)

    job = queue.reserve()

    assert fault.hits == 3
    assert job is not None
    assert job.id == last


@pytest.mark.parametrize("verb", ["purge", "redrive_all", "purge_failed"])
def test_what_goes_in_steps_may_simply_be_repeated(
    far: Lab, proxy: Proxy, impatient: None, verb: str
) -> None:
    queue, ids = far.queue(), [f"job-{number:03}" for number in range(300)]
    far.raw.script_load(script(verb).text)
    queue.enqueue_many([(id, "") for id in ids])
    if verb != "purge":
        queue.execute([operations.fail(job.id, 1) for job in queue.reserve_many(300)])
    proxy.fault(verb, skip=1, after=proxy.go)

    with pytest.raises(OutcomeUnknown, match="repeat the call") as caught:
        getattr(queue, verb)()

    assert caught.value.request == ""
    proxy.come_back()
    assert getattr(queue, verb)() < 300
    assert queue.counts().waiting == (300 if verb == "redrive_all" else 0)
    assert queue.counts().failed == 0


def test_the_claim_token_of_a_lost_reserve_is_the_true_one(far: Lab, proxy: Proxy) -> None:
    queue, _ = furnished(far)
    proxy.fault("reserve")

    job = queue.reserve()

    assert job.token
    assert queue.ack(job.id, job.attempt, token=job.token + "x") is False
    assert queue.ack(job.id, job.attempt, token=job.token) is True


def test_a_lost_reply_to_configure_changes_nothing(far: Lab, proxy: Proxy) -> None:
    queue = far.queue(capacity=1)
    proxy.fault("configure")
    queue.configure(capacity=2)
    proxy.fault("settings")
    assert queue.settings().capacity == 2


def test_a_lost_reply_to_pause_and_purge_has_one_effect_and_the_true_answer(
    far: Lab, proxy: Proxy
) -> None:
    queue = far.queue()
    for delivered in (True, False):
        proxy.fault("pause", delivered=delivered)
        assert queue.pause() is True
        assert queue.pause() is False
        proxy.fault("pause", delivered=delivered)
        assert queue.resume() is True
        assert queue.resume() is False
        queue.execute([operations.enqueue(f"{delivered}-{at}") for at in range(300)])
        proxy.fault("purge", delivered=delivered)
        assert queue.purge() == 300


def test_a_lost_reply_to_a_look_is_asked_for_again(far: Lab, proxy: Proxy) -> None:
    queue = far.queue()
    queue.enqueue("a")
    looks = {"counts": (), "get": ("a",), "jobs": ("waiting",), "position": ("a",), "history": ()}
    for name, args in looks.items():
        first = getattr(queue, name)(*args)
        proxy.fault(name)
        again = getattr(queue, name)(*args)
        assert again == first or name == "counts"


def test_a_lost_reply_to_the_creation_creates_one_queue(far: Lab, proxy: Proxy) -> None:
    for name in ["open", "sadd"]:
        fault = proxy.fault(name)
        queue = far.queue(capacity=7)
        assert queue.settings().capacity == 7
        assert queue.enqueue("a") is True
        assert fault.hits == 1


# Others come in between


@pytest.mark.parametrize("verb", ["cancel", "ack", "retry"])
@pytest.mark.parametrize("waiting", [0, 1, 2])
def test_a_lost_reserve_whose_job_was_settled_hands_out_the_next(
    far: Lab, real: Backend, proxy: Proxy, verb: str, waiting: int
) -> None:
    queue, model = far.queue(), Model(None)
    for id in ["first", "second", "third"][: waiting + 1]:
        check(queue, model, ("enqueue", id, f"of {id}"))
    with real.client() as client, Queue(queue.name, redis=client) as other:
        step = ("cancel", "first") if verb == "cancel" else (verb, "first", 1)
        proxy.fault("reserve", after=lambda: ask(other, step))
        assert ask(model, ("reserve",))
        assert ask(model, step)

        check(queue, model, ("reserve",))

    assert state(far, queue) == model


def test_a_lost_batch_of_reserves_tells_which_were_cancelled_meanwhile(
    far: Lab, real: Backend, proxy: Proxy
) -> None:
    queue = far.queue()
    queue.execute([operations.enqueue(id, f"of {id}") for id in "abcde"])
    with real.client() as client, Queue(queue.name, redis=client) as other:
        proxy.fault("reserve", after=lambda: (other.cancel("b"), other.cancel("d")))

        outcomes = queue.execute([operations.reserve()] * 3)

    assert [outcome.job and outcome.job.payload for outcome in outcomes] == ["of a", "of c", None]
    assert outcomes[2].reason is Reason.CANCELLED
    assert state(far, queue).in_flight == ["a", "c"]
    assert queue.reserve().id == "e"


@pytest.mark.parametrize("verb", VERBS)
def test_a_receipt_is_not_shaken_by_what_others_do(
    far: Lab, real: Backend, proxy: Proxy, verb: str
) -> None:
    """Between the lost reply and the resend the job goes on: the answer is that of the call."""
    queue, model = furnished(far)
    step = next(step for step in EFFECTIVE if step[0] == verb)
    then: dict[str, list[Step]] = {
        "enqueue": [("reserve",), ("reserve",), ("reserve",), ("ack", "new", 1)],
        "reserve": [("reserve",), ("ack", "last", 1), ("enqueue", "new", "")],
        "ack": [("enqueue", "new", "")],
        "retry": [("reserve",), ("reserve",), ("reserve",), ("ack", "held", 2)],
        "cancel": [("enqueue", "new", "")],
        "fail": [("redrive", "held"), ("reserve",), ("reserve",), ("reserve",)],
        "release": [("reserve",), ("ack", "held", 2)],
        "extend": [("retry", "held", 1), ("reserve",)],
        "redrive": [("reserve",), ("reserve",), ("reserve",), ("fail", "dead", 2)],
        "reschedule": [("reserve",), ("reserve",), ("ack", "next", 1)],
    }
    with real.client() as client, Queue(queue.name, redis=client) as other:
        proxy.fault(verb, after=lambda: [ask(other, step) for step in then[verb]])

        check(queue, model, step)

    for step in then[verb]:
        assert ask(model, step)
    assert state(far, queue) == model


# Many calls

LOSSES: dict[str, dict[str, Any]] = {
    "reply": {},
    "request": {"delivered": False},
    "replies": {"rest": True, "kept": 5},
    "replies-twice": {"rest": True, "times": 2},
}


def undisturbed(lab: Lab, proxy: Proxy) -> tuple[list[Any], Model, int]:
    """Run the mix: its outcomes, the state it leaves, and the number of its calls."""
    queue, model = lab.queue(capacity=2), Model(2)
    proxy.seen.clear()
    outcomes = queue.execute(list(map(operation, MIX)))
    calls = len([name for name in proxy.seen if name in VERBS])
    for outcome, step in zip(outcomes, MIX, strict=True):
        assert outcome.reason == reason(model, step)
        assert bool(outcome) == bool(ask(model, step))
    assert state(lab, queue) == model
    assert calls > 12
    return outcomes, model, calls


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_anywhere_in_a_list_leaves_its_outcomes_as_they_are(
    far: Lab, proxy: Proxy, loss: str
) -> None:
    expected, after, calls = undisturbed(far, proxy)
    for position in range(calls):
        queue = far.queue(capacity=2)
        fault = proxy.fault(skip=position, **LOSSES[loss])

        outcomes = queue.execute(list(map(operation, MIX)))

        proxy.come_back()
        assert outcomes == expected, position
        assert state(far, queue) == after, position
        assert fault.hits == fault.times


@pytest.mark.parametrize("loss", [True, False], ids=["with-a-loss", "alone"])
def test_forgotten_scripts_anywhere_in_a_list_are_invisible(
    far: Lab, proxy: Proxy, loss: bool
) -> None:
    expected, after, calls = undisturbed(far, proxy)
    for position in range(calls):
        queue = far.queue(capacity=2)
        flush = far.raw.script_flush
        proxy.fault(skip=position, before=flush, after=flush if loss else int, harmless=not loss)

        assert queue.execute(list(map(operation, MIX))) == expected, position
        assert state(far, queue) == after, position
        proxy.come_back()


@each_effective
def test_forgotten_scripts_between_calls_are_invisible(far: Lab, proxy: Proxy, step: Step) -> None:
    queue, model = furnished(far)
    far.raw.script_flush()

    check(queue, model, step)

    assert state(far, queue) == model
    assert proxy.seen[-2:] == ["script", step[0]]


@each_effective
def test_a_lost_reply_to_loading_a_script_is_invisible(far: Lab, proxy: Proxy, step: Step) -> None:
    queue, model = furnished(far)
    far.raw.script_flush()
    fault = proxy.fault("script", rest=True)

    check(queue, model, step)

    assert fault.hits == 1
    assert state(far, queue) == model


@pytest.mark.parametrize("seed", [1, 2])
def test_a_line_that_loses_much_loses_nothing(far: Lab, proxy: Proxy, seed: int) -> None:
    queue, model, dice = far.queue(capacity=6), Model(6), random.Random(seed)
    line = random.Random(seed)
    for what in ({}, {"delivered": False}, {"kept": 6}):
        proxy.fault(times=10**9, chance=lambda: line.random() < 0.12, **what)
    for _ in range(80):
        id = f"job-{dice.randrange(40)}"
        if model.in_flight and dice.random() < 0.6:
            id = dice.choice(model.in_flight)
        steps: list[Step] = [
            ("enqueue", id, f"of {id}"),
            ("reserve",),
            ("ack", id, model.attempts.get(id, 1)),
            ("retry", id, model.attempts.get(id, 1)),
            ("cancel", id),
        ]
        check(queue, model, dice.choices(steps, [4, 4, 3, 2, 1])[0])
    assert state(far, queue) == model


def test_calls_at_the_same_time_never_mix_on_a_line_that_loses(far: Lab, proxy: Proxy) -> None:
    queue, line = far.queue(), random.Random(1)
    for what in ({}, {"delivered": False}, {"kept": 2}):
        proxy.fault(times=10**9, chance=lambda: line.random() < 0.05, **what)
    handed: list[str] = []

    async def work(worker: int, call: Any) -> None:
        for number in range(15):
            id = f"{worker}-{number}"
            assert await call("enqueue", id, f"of {id}") is True
            job = await call("reserve")
            assert job.payload == f"of {job.id}"
            assert job.attempt == 1
            handed.append(job.id)
            assert await call("ack", job.id, 1, token=job.token) is True

    _at_the_same_time(far, queue, work)

    assert len(handed) == len(set(handed)) == 60
    assert state(far, queue) == Model(None, retired=dict.fromkeys(handed, "finished"))


def _at_the_same_time(lab: Lab, queue: Any, work: Any) -> None:
    """Run four of `work`, by threads or by tasks."""
    if lab.asynchronous:

        async def call(name: str, *args: Any, **more: Any) -> Any:
            return await getattr(queue.queue, name)(*args, **more)

        async def all_of_them() -> None:
            await asyncio.gather(*(work(worker, call) for worker in range(4)))

        lab._loop.run_until_complete(all_of_them())
        return

    async def plain(name: str, *args: Any, **more: Any) -> Any:
        return getattr(queue, name)(*args, **more)

    failures: list[BaseException] = []

    def run(worker: int) -> None:
        try:
            asyncio.run(work(worker, plain))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("far", ["async"], indirect=True)
@pytest.mark.parametrize("verb", ["enqueue", "reserve"])
def test_a_task_that_was_cancelled_leaves_its_answer_to_nobody(
    far: Lab, proxy: Proxy, verb: str
) -> None:
    queue, model = furnished(far)
    step = next(step for step in EFFECTIVE if step[0] == verb)

    async def cancelled() -> None:
        verb, args, named = split(step)
        task = asyncio.ensure_future(getattr(queue.queue, verb)(*args, **named))
        loop = asyncio.get_running_loop()
        soon = lambda: loop.call_soon_threadsafe(loop.call_later, 0.02, task.cancel)
        proxy.fault(verb, hang=True, after=soon)
        with pytest.raises(asyncio.CancelledError):
            await task

    far._loop.run_until_complete(cancelled())
    ask(model, step)
    if verb == "reserve":  # nobody heard of the job: it is handed back
        assert model.release("next", 1)

    for step in [("reserve",), ("ack", "held", 1), ("cancel", "nobody"), ("enqueue", "more", "x")]:
        check(queue, model, step)
    assert state(far, queue) == model


@pytest.mark.parametrize("far", ["async"], indirect=True)
@pytest.mark.parametrize("turns", range(6))
def test_a_task_is_cancelled_whenever_it_is(far: Lab, proxy: Proxy, turns: int) -> None:
    """In each of the first turns of the loop: before, while and after the request is sent."""
    queue = far.queue(redis=own(far, proxy, socket_timeout=0.2))
    queue.enqueue("first")

    async def cancelled() -> None:
        proxy.fault("enqueue", hang=True)
        task = asyncio.ensure_future(queue.queue.enqueue("second"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    far._loop.run_until_complete(cancelled())

    proxy.come_back()
    assert queue.enqueue("third") is True
    assert queue.reserve().id == "first"


# The server stays away


@pytest.mark.parametrize("delivered", [True, False], ids=["run", "never-run"])
@each_effective
def test_an_unknown_outcome_is_found_out_by_its_request(
    far: Lab, proxy: Proxy, impatient: None, step: Step, delivered: bool
) -> None:
    queue, model = furnished(far)
    going = {"after": proxy.go} if delivered else {"before": proxy.go, "delivered": False}
    proxy.fault(step[0], **going)

    with pytest.raises(OutcomeUnknown) as caught:
        ask(queue, step)

    assert isinstance(caught.value, redis.ConnectionError)
    assert caught.value.request in str(caught.value)
    assert caught.value.outcomes == ()
    proxy.come_back()
    fresh = far.queue(queue.name)
    request = caught.value.request
    answer = ask(fresh, step, request=request)
    assert answer == ask(model, step)
    assert state(far, queue) == model
    assert ask(fresh, step, request=request) == answer
    assert ask(queue, step, request=request) == answer
    assert state(far, queue) == model


def test_a_job_found_out_by_its_request_has_the_true_claim_token(
    far: Lab, proxy: Proxy, impatient: None
) -> None:
    queue, _ = furnished(far)
    proxy.fault("reserve", after=proxy.go)
    with pytest.raises(OutcomeUnknown) as caught:
        queue.reserve()
    proxy.come_back()

    job = far.queue(queue.name).reserve(request=caught.value.request)

    assert job.token == caught.value.request
    assert queue.ack(job.id, job.attempt, token=job.token) is True


@pytest.mark.parametrize("step", REFUSED[::3], ids=title)
def test_an_unknown_refusal_is_found_out_by_its_request(
    far: Lab, proxy: Proxy, impatient: None, step: Step
) -> None:
    queue, model = furnished(far)
    proxy.fault(step[0], after=proxy.go)
    with pytest.raises(OutcomeUnknown) as caught:
        ask(queue, step)
    proxy.come_back()

    check(queue, model, step, request=caught.value.request)

    assert state(far, queue) == model


def test_a_call_that_was_never_sent_is_no_unknown_outcome(
    far: Lab, proxy: Proxy, impatient: None
) -> None:
    queue, model = furnished(far)
    proxy.fault("reserve", after=proxy.go)
    with pytest.raises(OutcomeUnknown) as caught:
        queue.reserve()  # and with it goes the only connection

    for step in EFFECTIVE:
        with pytest.raises(ServerUnavailable):
            ask(queue, step)

    proxy.come_back()
    check(queue, model, ("reserve",), request=caught.value.request)
    assert state(far, queue) == model


@pytest.mark.parametrize("rest", [False, True], ids=["reply", "replies"])
def test_the_rest_of_a_list_is_executed_by_the_request_of_its_first(
    far: Lab, proxy: Proxy, impatient: None, rest: bool
) -> None:
    expected, after, calls = undisturbed(far, proxy)
    for position in range(calls):
        queue = far.queue(capacity=2)
        proxy.fault(skip=position, rest=rest, after=proxy.go)
        with pytest.raises(OutcomeUnknown) as caught:
            queue.execute(list(map(operation, MIX)))
        proxy.come_back()
        done = list(caught.value.outcomes)
        assert done == expected[: len(done)], position

        fresh = far.queue(queue.name)
        others = list(map(operation, MIX[len(done) :]))
        assert done + fresh.execute(others, request=caught.value.request) == expected, position

        assert state(far, queue) == after, position


# Request tokens


@each_effective
def test_a_request_token_of_the_users_own_has_one_effect(far: Lab, step: Step) -> None:
    queue, model = furnished(far)
    check(queue, model, step, request="order:17")
    answer = ask(queue, step, request="order:17")

    if step == ("reserve",):
        assert answer == ["next", "of next", 1]
    else:
        assert answer is True
    assert state(far, queue) == model


@each_effective
def test_a_request_token_used_for_another_call_is_refused(far: Lab, step: Step) -> None:
    queue, model = furnished(far)
    check(queue, model, step, request="order:17")
    before = far.dump(queue)

    for other in EFFECTIVE:
        if other != step:
            with pytest.raises(RequestRefused):
                ask(queue, other, request="order:17")

    assert far.dump(queue) == before


@pytest.mark.parametrize(
    ("step", "other"),
    [
        (("enqueue", "new", "x"), ("enqueue", "new", "y")),
        (("enqueue", "new", "x"), ("enqueue", "newer", "x")),
        (("ack", "held", 1), ("ack", "held", 2)),
        (("cancel", "held"), ("cancel", "next")),
    ],
    ids=str,
)
def test_a_request_token_used_with_other_arguments_is_refused(
    far: Lab, step: Step, other: Step
) -> None:
    queue, model = furnished(far)
    check(queue, model, step, request="order:17")
    before = far.dump(queue)

    with pytest.raises(RequestRefused):
        ask(queue, other, request="order:17")

    assert far.dump(queue) == before


def test_the_request_of_an_earlier_call_of_a_lane_is_refused(far: Lab) -> None:
    queue, _ = furnished(far)
    job = queue.reserve()
    queue.enqueue("new")  # by the lane that the reserve gave back
    before = far.dump(queue)

    with pytest.raises(RequestRefused):
        queue.reserve(request=job.token)

    assert far.dump(queue) == before


# Processes


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_and_its_parent_never_mix(real_lab: Lab, pauses: list[int]) -> None:
    queue = real_lab.queue()
    queue.enqueue("before", "of before")

    def work(queue: Any, whose: str) -> None:
        for number in range(50):
            id = f"{whose}-{number}"
            assert queue.enqueue(id, f"of {id}") is True
            job = queue.reserve()
            assert job.payload == f"of {job.id}"
            assert queue.ack(job.id, job.attempt, token=job.token) is True
        assert pauses == [], "every reply came to the one who asked"

    child = os.fork()
    if child == 0:
        code = 1
        try:
            if real_lab.asynchronous:
                queue = Blocking(queue.queue, asyncio.new_event_loop())
            work(queue, "child")
            queue.close()
            code = 0
        finally:
            os._exit(code)
    try:
        work(queue, "parent")
    finally:
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    work(queue, "afterwards")

    contents = real_lab.dump(queue)
    after = observed(contents)
    assert len(after.retired) == 150
    assert len(after.waiting) == 1
    assert len({lane.partition(b".")[0] for lane in contents["receipts"]}) == 2
