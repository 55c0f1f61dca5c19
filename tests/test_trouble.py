"""Servers that are away, loading, full, read-only, forbidding or damaged: an error, never a guess.

And whatever the error: nothing is half done.
"""

import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from model import Model, observed
from support import Backend, Lab, await_true, running

from durableq import (
    InvalidArgument,
    Job,
    OutcomeUnknown,
    QueueCorrupt,
    ServerRefused,
    ServerUnavailable,
    UnsupportedFormat,
    operations,
    policy,
    queues,
)
from durableq.keys import PARTS, registry_key
from durableq.program import find_program
from durableq.scripts import script

Step = tuple[Any, ...]

EFFECTIVE: list[Step] = [
    ("enqueue", "new", "of new"),
    ("reserve",),
    ("ack", "held", 1),
    ("ack", "again", 2),
    ("retry", "held", 1),
    ("retry", "again", 2),
    ("cancel", "held"),
    ("cancel", "again"),
    ("cancel", "next"),
]
REFUSED: list[Step] = [
    ("enqueue", "next", "of next"),
    ("enqueue", "finished", ""),
    ("enqueue", "cancelled", ""),
    ("ack", "held", 2),
    ("ack", "next", 1),
    ("ack", "finished", 1),
    ("retry", "held", 2),
    ("retry", "next", 0),
    ("retry", "cancelled", 1),
    ("cancel", "finished"),
    ("cancel", "nobody"),
]
DRAINING = [step for step in [*EFFECTIVE, *REFUSED] if step[0] != "enqueue"]
FULL: Step = ("enqueue", "newer", "")
"""In a queue that `fill` has filled."""


def title(step: Step) -> str:
    return "-".join(map(str, step[:2]))


both = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


def furnished(lab: Lab, **settings: Any) -> tuple[Any, Model]:
    """A queue with something in every part that is in use, and its model."""
    queue, model = lab.queue(capacity=6, **settings), Model(6)
    steps: list[Step] = [
        ("enqueue", "finished", ""),
        ("reserve",),
        ("ack", "finished", 1),
        ("enqueue", "cancelled", ""),
        ("cancel", "cancelled"),
        ("enqueue", "again", "of again"),
        ("reserve",),
        ("retry", "again", 1),
        ("reserve",),
        ("enqueue", "held", "of held"),
        ("reserve",),
        ("enqueue", "next", "of next"),
        ("enqueue", "ghost", "of ghost"),
        ("enqueue", "last", "of last"),
        ("cancel", "ghost"),
    ]
    made = [getattr(operations, name)(*args) for name, *args in steps]
    made[7] = operations.retry("again", 1, error="it did not work")
    assert all(queue.execute(made))
    assert all(ask(model, step) for step in steps)
    # The order is front, then waiting.
    lab.raw.rpush(lab.key(queue, "front"), lab.raw.lpop(lab.key(queue, "waiting")))
    return queue, model


def fill(lab: Lab, queue: Any, model: Model) -> None:
    lab.raw.hset(lab.key(queue, "meta"), "capacity", 4)
    model.capacity = 4


def ask(target: Any, step: Step, **more: Any) -> Any:
    """Run a step on a queue or a model; a job is told as the model tells it."""
    answer = getattr(target, step[0])(*step[1:], **more)
    return [answer.id, answer.payload, answer.attempt] if isinstance(answer, Job) else answer


def check(queue: Any, model: Model, step: Step, **more: Any) -> None:
    answer, expected = ask(queue, step, **more), ask(model, step)
    assert answer == expected
    assert type(answer) is type(expected)


def state(lab: Lab, queue: Any) -> Model:
    return observed(lab.dump(queue))


def exact(lab: Lab, queue: Any) -> list[bytes | None]:
    """Every key of a queue, to the byte."""
    with lab.raw.pipeline(transaction=False) as pipe:
        for key in queue._definition.keys:
            pipe.dump(key)
        return pipe.execute()


class Visit(Lab):
    """A lab that leaves its queues as they are: their server may not be there any more."""

    def end(self) -> None:
        for queue in self._made:
            queue.close()
        self._made.clear()
        super().end()


@contextmanager
def visit(url: str, asynchronous: bool) -> Iterator[Visit]:
    lab = Visit(Backend("visited", url), asynchronous)
    try:
        yield lab
    finally:
        lab.end()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "PATIENCE", 0.02)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[int]]:
    """Plan what happens while a call waits for the first time; the waits are kept."""

    def plan(work: Callable[[], Any]) -> list[int]:
        waits: list[int] = []

        def pause(tries: int, chance: float) -> float:
            waits.append(tries)
            if len(waits) == 1:
                work()
            return 0.001

        monkeypatch.setattr(policy, "resend_pause", pause)
        return waits

    return plan


@pytest.fixture
def never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is to be tried twice."""

    def pause(tries: int, chance: float) -> float:
        pytest.fail("it was patient")

    monkeypatch.setattr(policy, "resend_pause", pause)


@pytest.fixture(params=["embedded", "redis7"], scope="module")
def program(request: pytest.FixtureRequest) -> str:
    """Each server program in turn, for a server of one's own."""
    if request.param == "embedded":
        return str(find_program().path)
    return request.getfixturevalue("redis_program")


# Away


@both
def test_a_killed_server_is_an_error_never_an_answer(
    program: str, short_folder: Path, impatient: None, asynchronous: bool
) -> None:
    with running(program, short_folder) as url:
        lab = Visit(Backend("killed", url), asynchronous)
        steps = [EFFECTIVE[0], *EFFECTIVE[1::2]]
        made = [furnished(lab)[0] for _ in steps]
    try:
        for queue, step in zip(made, steps, strict=True):
            with pytest.raises(OutcomeUnknown):
                ask(queue, step)  # sent into a connection that may have been alive
            with pytest.raises(ServerUnavailable):
                ask(queue, step)  # never sent
            with pytest.raises(ServerUnavailable) as caught:
                queue.execute([operations.reserve(), operations.cancel("next")])
            assert caught.value.outcomes == ()
            assert isinstance(caught.value, redis.ConnectionError)
    finally:
        lab.end()


@both
def test_a_call_outlasts_a_restart(
    program: str, short_folder: Path, meanwhile: Callable[..., list[int]], asynchronous: bool
) -> None:
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    with running(program, short_folder, *durable) as url:
        lab = Visit(Backend("restarted", url), asynchronous)
        queue, model = furnished(lab)
    restarted = running(program, short_folder, *durable)
    waits = meanwhile(restarted.__enter__)
    try:
        check(queue, model, ("reserve",))

        assert waits
        for step in [("ack", "held", 1), ("enqueue", "new", ""), ("reserve",), ("reserve",)]:
            check(queue, model, step)
        assert state(lab, queue) == model
    finally:
        lab.end()
        restarted.__exit__(None, None, None)


@both
def test_a_call_to_a_frozen_server_is_run_once_when_it_thaws(
    program: str, short_folder: Path, impatient: None, asynchronous: bool
) -> None:
    with running(program, short_folder) as url, visit(url, asynchronous) as lab:
        pid = lab.raw.info("server")["process_id"]
        requests = []
        steps = [("reserve",), ("enqueue", "new", "of new")]
        timeouts = {"socket_timeout": 0.3, "socket_connect_timeout": 0.3}
        made = [furnished(lab, redis=lab.client(**timeouts)) for _ in steps]
        os.kill(pid, signal.SIGSTOP)
        try:
            for (queue, _), step in zip(made, steps, strict=True):
                with pytest.raises(OutcomeUnknown) as caught:
                    ask(queue, step)
                requests.append(caught.value.request)
        finally:
            os.kill(pid, signal.SIGCONT)
        for (queue, model), step, request in zip(made, steps, requests, strict=True):
            check(lab.queue(queue.name), model, step, request=request)
            assert state(lab, queue) == model


@pytest.fixture
def nowhere() -> Iterator[int]:
    """A port where nobody listens, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@both
@pytest.mark.parametrize("kind", ["port", "socket"])
def test_an_address_where_nobody_listens_fails_at_once_and_is_named(
    nowhere: int, short_folder: Path, never_again: None, asynchronous: bool, kind: str
) -> None:
    path = short_folder / "nobody"
    url = f"redis://:swordfish@127.0.0.1:{nowhere}" if kind == "port" else f"unix://{path}"
    with visit(url, asynchronous) as lab:
        with pytest.raises(ServerUnavailable) as caught:
            lab.queue("emails", redis=url)

        assert "emails" in str(caught.value)
        assert (str(nowhere) if kind == "port" else str(path)) in str(caught.value)
        assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{}", "redis://:wrong@127.0.0.1:{}"])
@both
def test_a_missing_or_wrong_password_is_refused_at_once(
    program: str, short_folder: Path, never_again: None, url: str, asynchronous: bool
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    process = subprocess.Popen(
        [
            *(program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""),
            *("--dir", str(short_folder), "--logfile", str(short_folder / "log")),
            *("--requirepass", "swordfish"),
        ]
    )
    try:
        with redis.Redis(port=port, password="swordfish") as raw:
            await_true(lambda: _answers(raw))
        with visit(url.format(port), asynchronous) as lab:
            with pytest.raises(ServerRefused) as caught:
                lab.queue("emails", redis=url.format(port))
            assert "wrong@" not in str(caught.value)
            assert lab.queue(redis=f"redis://:swordfish@127.0.0.1:{port}").enqueue("a") is True
    finally:
        process.kill()
        process.wait()


def _answers(raw: redis.Redis) -> bool:
    with suppress(redis.ConnectionError):
        return bool(raw.ping())
    return False


# Loading, and busy


@contextmanager
def loading(program: str, folder: Path) -> Iterator[str]:
    """A server that goes on loading its data until it is told to be quick."""
    words = ["--port", "0", "--unixsocket", str(folder / "s"), "--dir", str(folder)]
    words += ["--save", "", "--logfile", str(folder / "log")]
    words += ["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"]
    process = subprocess.Popen([program, *words])
    try:
        with redis.Redis(unix_socket_path=str(folder / "s")) as raw:
            await_true(lambda: _is_loading(raw))
        yield f"unix://{folder / 's'}"
    finally:
        process.kill()
        process.wait()


def _is_loading(raw: redis.Redis) -> bool:
    with suppress(redis.ConnectionError):
        return bool(raw.info("persistence")["loading"])
    return False


@both
def test_a_loading_server_is_waited_for(
    program: str, short_folder: Path, meanwhile: Callable[..., list[int]], asynchronous: bool
) -> None:
    with running(program, short_folder) as url:
        lab = Visit(Backend("loading", url), asynchronous)
        queue, model = furnished(lab)
        for number in range(1500):
            lab.raw.set(f"ballast:{number}", os.urandom(700))
        lab.raw.save()
    try:
        with loading(program, short_folder) as url:
            waits = meanwhile(lambda: None)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(policy, "PATIENCE", 0.02)
                with pytest.raises(OutcomeUnknown):
                    queue.reserve()  # sent to the one that was killed
                with pytest.raises(ServerUnavailable, match=r"(?i)loading"):
                    queue.reserve()
                with pytest.raises(ServerUnavailable, match=r"(?i)loading"):
                    lab.queue(queue.name)
            assert waits

            waits = meanwhile(lambda: lab.raw.config_set("key-load-delay", 0))
            check(queue, model, ("reserve",))
            assert waits
            assert state(lab, queue) == model
    finally:
        lab.end()


def test_a_busy_server_is_waited_for(
    real_lab: Lab, meanwhile: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, model = furnished(real_lab)
    real_lab.raw.config_set("lua-time-limit", 1)

    def endless() -> None:
        with real_lab.backend.client() as client, suppress(redis.ResponseError):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=endless)
    thread.start()
    try:
        await_true(lambda: _is_busy(real_lab.raw))
        with monkeypatch.context() as patch:
            patch.setattr(policy, "PATIENCE", 0.02)
            with pytest.raises(ServerUnavailable, match=r"(?i)busy"):
                queue.reserve()
        waits = meanwhile(real_lab.raw.script_kill)
        check(queue, model, ("reserve",))
        assert waits
    finally:
        with suppress(redis.ResponseError):
            real_lab.raw.script_kill()
        thread.join()
        real_lab.raw.config_set("lua-time-limit", 5000)
    assert state(real_lab, queue) == model


def _is_busy(raw: redis.Redis) -> bool:
    try:
        raw.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


# Read-only


@dataclass
class Pair:
    primary: str
    replica: str


@pytest.fixture(scope="module")
def pair(program: str) -> Iterator[Pair]:
    """A server with a replica."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="dq-") as one, tempfile.TemporaryDirectory() as two:
        quick = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
        with (
            running(program, Path(one), *quick, port=port) as primary,
            running(program, Path(two), "--replicaof", f"127.0.0.1 {port}") as replica,
            redis.Redis.from_url(replica) as raw,
        ):
            await_true(lambda: raw.info("replication")["master_link_status"] == "up")
            yield Pair(primary, replica)


@both
def test_a_replica_refuses_everything_even_what_would_be_refused_anyway(
    pair: Pair, never_again: None, asynchronous: bool
) -> None:
    with visit(pair.primary, False) as there, visit(pair.replica, asynchronous) as lab:
        made, model = furnished(there)
        empty = there.queue(capacity=0)
        assert there.raw.wait(1, 10_000) == 1
        # The client was connected when the server was a primary still.
        lab.raw.config_set("replica-read-only", "no")
        queue = lab.queue(made.name)
        nothing = lab.queue(empty.name)
        lab.raw.config_set("replica-read-only", "yes")
        before = exact(lab, queue), exact(lab, nothing)
        assert lab.dump(queue) == there.dump(made)

        for step in [*EFFECTIVE, *REFUSED]:
            with pytest.raises(ServerRefused):
                ask(queue, step)
        for step in [("reserve",), ("enqueue", "new", "")]:
            with pytest.raises(ServerRefused):
                ask(nothing, step)
        with pytest.raises(ServerRefused):
            queue.configure(capacity=1)
        with pytest.raises(ServerRefused):
            queue.destroy()
        with pytest.raises(ServerRefused) as caught:
            queue.execute([operations.reserve(), operations.cancel("nobody")])
        assert caught.value.outcomes == ()

        assert (exact(lab, queue), exact(lab, nothing)) == before
        assert state(lab, queue) == model


def test_a_primary_without_its_replicas_refuses_everything(
    real_lab: Lab, never_again: None
) -> None:
    queue, _ = furnished(real_lab)
    empty = real_lab.queue(capacity=0)
    before = exact(real_lab, queue), exact(real_lab, empty)
    real_lab.raw.config_set("min-replicas-to-write", 1)
    try:
        for step in [*EFFECTIVE, *REFUSED]:
            with pytest.raises(ServerRefused, match="NOREPLICAS"):
                ask(queue, step)
        for step in [("reserve",), ("enqueue", "new", "")]:
            with pytest.raises(ServerRefused):
                ask(empty, step)
    finally:
        real_lab.raw.config_set("min-replicas-to-write", 0)
    assert (exact(real_lab, queue), exact(real_lab, empty)) == before


# Out of memory


@contextmanager
def out_of_memory(lab: Lab) -> Iterator[None]:
    lab.raw.config_set("maxmemory", 1)
    try:
        yield
    finally:
        lab.raw.config_set("maxmemory", 0)


def test_a_full_server_takes_no_job_and_refuses_none(real_lab: Lab, never_again: None) -> None:
    queue, model = furnished(real_lab)
    before = exact(real_lab, queue)
    with out_of_memory(real_lab):
        for step in [*EFFECTIVE, *REFUSED]:
            if step[0] == "enqueue":
                with pytest.raises(ServerRefused, match="OOM"):
                    ask(queue, step)
        with pytest.raises(ServerRefused, match="OOM"):
            queue.execute([operations.enqueue("new"), operations.enqueue("next")])
        with pytest.raises(ServerRefused, match="OOM"):
            queue.configure(capacity=1)
    assert exact(real_lab, queue) == before
    fill(real_lab, queue, model)
    before = exact(real_lab, queue)
    with out_of_memory(real_lab), pytest.raises(ServerRefused, match="OOM"):
        ask(queue, FULL)
    assert exact(real_lab, queue) == before
    check(queue, model, FULL)


def test_a_full_server_can_be_drained(real_lab: Lab, never_again: None) -> None:
    for step in DRAINING:
        queue, model = furnished(real_lab)
        with out_of_memory(real_lab):
            check(queue, model, step)
            check(queue, model, step)
        assert state(real_lab, queue) == model


def test_a_full_server_can_be_drained_by_lists(real_lab: Lab, never_again: None) -> None:
    queue, model = furnished(real_lab)
    steps: list[Step] = [
        ("ack", "again", 2),
        ("ack", "again", 2),
        ("retry", "held", 1),
        ("reserve",),
        ("reserve",),
        ("reserve",),
        ("reserve",),
        ("cancel", "nobody"),
        ("cancel", "last"),
        ("retry", "next", 1),
        ("retry", "next", 1),
        ("reserve",),
        ("ack", "held", 2),
        ("cancel", "next"),
        ("reserve",),
    ]
    with out_of_memory(real_lab):
        outcomes = queue.execute([getattr(operations, s[0])(*s[1:]) for s in steps])

    for outcome, step in zip(outcomes, steps, strict=True):
        assert bool(outcome) == bool(ask(model, step)), step
    assert state(real_lab, queue) == model
    assert model.payloads == {}


def test_a_full_server_can_be_drained_although_it_has_lost_the_scripts(real_lab: Lab) -> None:
    queue, model = furnished(real_lab)
    with out_of_memory(real_lab):
        real_lab.raw.script_flush()
        check(queue, model, ("reserve",))
        check(queue, model, ("ack", "next", 1))
    assert state(real_lab, queue) == model


def test_a_full_server_can_be_drained_by_who_comes_just_now(real_lab: Lab) -> None:
    queue, model = furnished(real_lab)
    with out_of_memory(real_lab):
        newcomer = real_lab.queue(queue.name)
        for step in [("reserve",), ("ack", "next", 1), ("cancel", "last")]:
            check(newcomer, model, step)
    assert state(real_lab, queue) == model


def test_a_full_server_makes_no_queue(real_lab: Lab) -> None:
    with out_of_memory(real_lab), pytest.raises(ServerRefused, match="OOM"):
        real_lab.queue("there-is-no-room-for-me")
    assert not real_lab.raw.keys("*there-is-no-room-for-me*")


# Damage


def restore(lab: Lab, queue: Any, contents: list[bytes | None]) -> None:
    with lab.raw.pipeline(transaction=False) as pipe:
        pipe.delete(*queue._definition.keys)
        for key, value in zip(queue._definition.keys, contents, strict=True):
            if value is not None:
                pipe.restore(key, 0, value)
        pipe.execute()


@pytest.fixture
def plain(backend: Backend) -> Iterator[Lab]:
    """A maker of plain queues on every server: what scripts do is the same for both kinds."""
    lab = Lab(backend, asynchronous=False)
    yield lab
    lab.end()


WRITERS: dict[str, Callable[[redis.Redis, bytes], Any]] = {
    "string": lambda raw, key: raw.set(key, "something else"),
    "list": lambda raw, key: raw.rpush(key, "something", "else"),
}
HASHES = ["meta", "jobs", "payloads", "errors", "headers", "failures", "receipts"]


@pytest.mark.parametrize(
    ("part", "wrong"),
    [*((part, "string") for part in PARTS), *((part, "list") for part in HASHES)],
)
def test_a_part_of_a_wrong_type_is_never_half_written(plain: Lab, part: str, wrong: str) -> None:
    queue, model = furnished(plain)
    key, place = plain.key(queue, part), PARTS.index(part)
    whole = exact(plain, queue)
    refusing = set()

    def run(step: Step, whole: list[bytes | None], model: Model) -> None:
        plain.raw.delete(key)
        WRITERS[wrong](plain.raw, key)
        before, after = exact(plain, queue), model.copy()
        try:
            if step[0] == "configure":
                queue.configure(capacity=9)
                after.capacity = 9
            else:
                check(queue, after, step)
        except QueueCorrupt:
            refusing.add(step[0])
            assert exact(plain, queue) == before, step
        else:
            # It can do without that part, and so has left it as it was.
            contents = exact(plain, queue)
            assert contents[place] == before[place]
            contents[place] = whole[place]
            restore(plain, queue, contents)
            assert state(plain, queue) == after, step
        restore(plain, queue, whole)

    for step in [*EFFECTIVE, *REFUSED[::2], ("configure", 9)]:
        run(step, whole, model)
    fill(plain, queue, model)
    run(FULL, exact(plain, queue), model)
    restore(plain, queue, whole)
    if part in ("meta", "receipts"):
        assert refusing == {"enqueue", "reserve", "ack", "retry", "cancel", "configure"}
    if part in ("jobs", "leases", "payloads"):
        assert refusing >= {"enqueue", "reserve", "ack", "cancel"}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_wrong_type_never_spoils_the_opening(plain: Lab, part: str) -> None:
    queue, _ = furnished(plain)
    plain.raw.delete(plain.key(queue, part))
    plain.raw.set(plain.key(queue, part), "something else")
    before = exact(plain, queue)
    if part == "meta":
        with pytest.raises(QueueCorrupt):
            plain.queue(queue.name)
        with pytest.raises(QueueCorrupt):
            queue.settings()
    else:
        assert plain.queue(queue.name).settings().capacity == 6
    assert exact(plain, queue) == before


def test_a_registry_of_a_wrong_type_is_corrupt(lab: Lab) -> None:
    prefix = "with-a-broken-registry"
    queue = lab.queue(prefix=prefix)
    lab.raw.set(registry_key(prefix), "something else")
    try:
        with pytest.raises(QueueCorrupt):
            lab.queue(prefix=prefix)
        with pytest.raises(QueueCorrupt):
            queue.queues()
        assert queue.enqueue("a") is True
    finally:
        lab.raw.delete(registry_key(prefix))


BROKEN = ["", "nonsense", "1 1w", "1 1f 1 t 1 0  0"]
BROKEN += ["1 2f 1 t 1 0  0 1 0  ", "1 1x 1 t 1 0  0 1 0  "]


@pytest.mark.parametrize("record", BROKEN)
@pytest.mark.parametrize(
    ("id", "steps"),
    [
        ("next", [("reserve",), ("ack", "next", 1), ("retry", "next", 1), ("cancel", "next")]),
        ("held", [("ack", "held", 1), ("retry", "held", 1), ("cancel", "held")]),
    ],
)
def test_a_record_that_cannot_be_read_is_corrupt_and_left_alone(
    plain: Lab, record: str, id: str, steps: list[Step]
) -> None:
    queue, _ = furnished(plain)
    plain.raw.hset(plain.key(queue, "jobs"), id, record)
    before = exact(plain, queue)

    for step in steps:
        with pytest.raises(QueueCorrupt, match=id):
            ask(queue, step)

    assert queue.enqueue(id, "") is False
    assert exact(plain, queue) == before


def test_a_record_that_cannot_be_read_stops_a_whole_batch(lab: Lab) -> None:
    queue, _ = furnished(lab)
    lab.raw.hset(lab.key(queue, "jobs"), "last", "nonsense")
    before = exact(lab, queue)

    for batch in [
        [operations.reserve()] * 2,
        [operations.cancel("next"), operations.cancel("last")],
        [operations.ack("held", 1), operations.ack("last", 1)],
        [operations.retry("held", 1), operations.retry("last", 1)],
    ]:
        with pytest.raises(QueueCorrupt, match="last"):
            queue.execute(batch)
        assert exact(lab, queue) == before


def test_a_missing_payload_is_corrupt_and_left_alone(lab: Lab) -> None:
    queue, _ = furnished(lab)
    lab.raw.hdel(lab.key(queue, "payloads"), "next")
    before = exact(lab, queue)

    with pytest.raises(QueueCorrupt, match="next"):
        queue.reserve()
    with pytest.raises(QueueCorrupt, match="next"):
        queue.execute([operations.reserve()] * 2)

    assert exact(lab, queue) == before
    assert queue.cancel("next") is True
    assert queue.reserve().id == "last"


def test_a_waiting_id_without_a_record_takes_nobody_along(lab: Lab) -> None:
    queue = lab.queue()
    for id in ["lost", "a", "b"]:
        queue.enqueue(id, f"of {id}")
    lab.raw.hdel(lab.key(queue, "jobs"), "lost")
    before = exact(lab, queue)

    handed: list[str] = []
    for _ in range(2):
        try:
            handed.append(queue.reserve().id)
        except QueueCorrupt:
            assert exact(lab, queue) == before
            return
    assert handed == ["a", "b"]


@pytest.mark.parametrize("value", [None, "", "nonsense"])
@pytest.mark.parametrize("field", ["capacity", "sequence", "ghosts"])
def test_a_damaged_setting_is_never_half_obeyed(plain: Lab, field: str, value: str | None) -> None:
    queue, model = furnished(plain)
    whole = exact(plain, queue)
    for step in EFFECTIVE:
        if value is None:
            plain.raw.hdel(plain.key(queue, "meta"), field)
        else:
            plain.raw.hset(plain.key(queue, "meta"), field, value)
        before = exact(plain, queue)
        try:
            check(queue, model.copy(), step)
        except (QueueCorrupt, ServerRefused):
            assert exact(plain, queue) == before, step
        restore(plain, queue, whole)


@pytest.mark.parametrize(
    ("field", "value"), [("capacity", "nonsense"), ("capacity", "1.5"), ("codec", None)]
)
def test_a_damaged_setting_is_told_by_the_opening(lab: Lab, field: str, value: str | None) -> None:
    queue, _ = furnished(lab)
    if value is None:
        lab.raw.hdel(lab.key(queue, "meta"), field)
    else:
        lab.raw.hset(lab.key(queue, "meta"), field, value)
    before = exact(lab, queue)

    with pytest.raises(QueueCorrupt):
        lab.queue(queue.name)
    with pytest.raises(QueueCorrupt):
        queue.settings()

    assert exact(lab, queue) == before


def test_a_newer_format_is_refused_and_left_alone(lab: Lab) -> None:
    queue, _ = furnished(lab)
    lab.raw.hset(lab.key(queue, "meta"), "format", "2")
    before = exact(lab, queue)
    try:
        for step in [*EFFECTIVE, *REFUSED]:
            with pytest.raises(UnsupportedFormat, match="2"):
                ask(queue, step)
        with pytest.raises(UnsupportedFormat, match="2"):
            queue.configure(capacity=1)
        with pytest.raises(UnsupportedFormat, match="2"):
            queue.settings()
        with pytest.raises(UnsupportedFormat, match="2"):
            lab.queue(queue.name)
        assert exact(lab, queue) == before
    finally:
        lab.raw.hset(lab.key(queue, "meta"), "format", "1")


def test_a_newer_format_is_not_destroyed(lab: Lab) -> None:
    queue, _ = furnished(lab)
    lab.raw.hset(lab.key(queue, "meta"), "format", "2")
    before = exact(lab, queue)
    try:
        with pytest.raises(UnsupportedFormat, match="2"):
            queue.destroy()
        assert exact(lab, queue) == before
    finally:
        lab.raw.hset(lab.key(queue, "meta"), "format", "1")


# Missing rights


@pytest.fixture
def limited(real: Backend) -> Iterator[Lab]:
    """A maker of plain queues whose user's rights `allow` sets."""
    with real.client() as raw:
        lab = Lab(real, asynchronous=False)
        allow(lab, "+@all")
        yield lab
        lab.end()
        raw.acl_deluser("limited")


def allow(lab: Lab, *rights: str) -> None:
    words = ("reset", "on", ">swordfish", "~*", "&*", *rights)
    lab.raw.execute_command("ACL", "SETUSER", "limited", *words)


def inner_commands(name: str) -> list[str]:
    return sorted(set(re.findall(r"call\('([A-Z]+)'", script(name).text)))


LATER_WRITES = {
    "enqueue": {"HSET", "RPUSH", "LINDEX", "LTRIM"},
    "reserve": {"HSET", "ZADD"},
    "ack": {"HDEL", "SADD", "HSET"},
    "retry": {"HINCRBY", "HSET", "RPUSH"},
    "cancel": {"ZREM", "SADD", "HSET"},
    "configure": {"LRANGE", "RPUSH"},
}
"""What a server refuses only after the first write, of which it undoes nothing (by script)."""


@pytest.mark.parametrize("verb", LATER_WRITES)
def test_a_missing_right_is_refused_and_nothing_is_half_done(limited: Lab, verb: str) -> None:
    client = limited.client(username="limited", password="swordfish")
    queue, model = furnished(limited, redis=client)
    whole = exact(limited, queue)
    steps = [step for step in [*EFFECTIVE, *REFUSED, ("configure", 9)] if step[0] == verb]
    half_done = set()
    for command in inner_commands(verb):
        for step in steps:
            restore(limited, queue, whole)
            allow(limited, "+@all", f"-{command}")
            before, after = exact(limited, queue), model.copy()
            try:
                if verb == "configure":
                    queue.configure(capacity=9)
                    after.capacity = 9
                else:
                    check(queue, after, step)
            except ServerRefused:
                if exact(limited, queue) != before:
                    half_done.add(command)
            else:
                assert state(limited, queue) == after, (step, command)
    assert half_done - LATER_WRITES[verb] == set()


@pytest.mark.parametrize("rights", [["-evalsha"], ["-script"], ["resetkeys", "~other:*"]], ids=str)
def test_a_user_without_scripts_or_keys_is_refused(limited: Lab, rights: list[str]) -> None:
    client = limited.client(username="limited", password="swordfish")
    queue, model = furnished(limited, redis=client)
    before = exact(limited, queue)
    limited.raw.script_flush()
    allow(limited, "+@all", *rights)

    for step in [*EFFECTIVE, *REFUSED]:
        with pytest.raises(ServerRefused):
            ask(queue, step)

    assert exact(limited, queue) == before
    allow(limited, "+@all")
    check(queue, model, ("reserve",))


# The environment and the address


def test_the_server_is_that_of_the_environment(
    real_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLEQ_URL", real_lab.backend.url)
    monkeypatch.setenv("DURABLEQ_EMBEDDED", "never")
    queue = real_lab.queue(redis=None)

    assert queue.enqueue("a", "of a") is True

    assert state(real_lab, queue).waiting == ["a"]
    assert queue.name in queues()


def test_a_given_server_goes_before_that_of_the_environment(
    real_lab: Lab, monkeypatch: pytest.MonkeyPatch, nowhere: int
) -> None:
    monkeypatch.setenv("DURABLEQ_URL", f"redis://127.0.0.1:{nowhere}")
    queue = real_lab.queue(redis=real_lab.backend.url)
    assert queue.enqueue("a") is True


BAD = [
    "http://user:hunter2@localhost",
    "localhost:6379",
    "//user:hunter2@localhost",
    "redis://user:hunter2@localhost:port",
    "redis://user:hunter2@localhost:99999",
    "redis://user:hunter2@[::1",
    "redis://user:hun/ter2@localhost:6379",
    "redis://:hun#ter2@localhost:6379",
    "redis://:hun?ter2@localhost:6379",
    "redis://user:hunter2@localhost?socket_timeout=soon",
    "hunter2",
    " ",
]


@both
@pytest.mark.parametrize("how", ["given", "environment"])
@pytest.mark.parametrize("url", BAD)
def test_a_bad_address_is_an_invalid_argument_that_hides_the_password(
    monkeypatch: pytest.MonkeyPatch, url: str, how: str, asynchronous: bool
) -> None:
    monkeypatch.setenv("DURABLEQ_EMBEDDED", "never")
    if how == "environment":
        monkeypatch.setenv("DURABLEQ_URL", url)
    with visit("unix:///nowhere", asynchronous) as lab:
        with pytest.raises(InvalidArgument, match="redis://HOST:PORT/DB") as caught:
            lab.queue("emails", redis=None if how == "environment" else url)
        assert "hun" not in str(caught.value)
        assert "ter2" not in str(caught.value)
