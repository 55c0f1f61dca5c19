"""examples/worker.py: as a process, and its functions where a server must fail at a set moment."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from proxy import Proxy
from support import Backend, await_true, dump, running

from durableq import (
    FailureReason,
    Job,
    OutcomeUnknown,
    Queue,
    Reason,
    ServerUnavailable,
    operations,
    policy,
)
from durableq.keys import PARTS
from durableq.program import find_program

PROGRAM = Path(__file__).parents[1] / "examples" / "worker.py"


class Worker:
    """The program as a process; what it prints goes to files, which can be read at any time."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with open(self._out, "w") as out, open(self._err, "w") as err:
            self.process = subprocess.Popen(
                [sys.executable, PROGRAM, *words],
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def prints(self, line: str) -> None:
        await_true(lambda: f"{line}\n" in self.out or self.process.poll() is not None)
        assert f"{line}\n" in self.out, self.err

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start workers that do not outlive the test."""
    with contextlib.ExitStack() as stack:

        def start(*words: str, **environment: str) -> Worker:
            folder = tmp_path / f"worker {len(list(tmp_path.glob('worker *')))}"
            folder.mkdir()
            worker = Worker(folder, *words, **environment)
            stack.callback(worker.process.wait)
            stack.callback(worker.process.kill)
            return worker

        yield start


@contextlib.contextmanager
def fresh(url: str, name: str | None = None) -> Iterator[Queue[str]]:
    with Queue(name, redis=url) as queue:
        try:
            yield queue
        finally:
            queue.destroy()


@pytest.fixture
def queue(embedded: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue[str]]:
    """A queue on the server that DURABLEQ_URL names."""
    monkeypatch.setenv("DURABLEQ_URL", embedded.url)
    with fresh(embedded.url) as queue:
        yield queue


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module of this process, with no pauses."""
    spec = importlib.util.spec_from_file_location("example_worker", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAUSE", 0)
    return module


def fate(queue: Queue[str], id: str) -> Reason:
    """Return what became of the job, asked by an id that cannot be accepted again."""
    return queue.execute(operations.enqueue(id)).reason


def errors(queue: Queue[str], server: Backend) -> dict[bytes, bytes]:
    with server.client() as raw:
        return dump(raw, queue._definition.keys).get("errors", {})


# As a process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_finishes_every_job_and_ends_when_it_is_told(
    start: Start, queue: Queue[str], number: signal.Signals
) -> None:
    queue.execute([operations.enqueue(f"job-{i}", f"of {i}") for i in range(20)])
    worker = start(queue.name)
    worker.prints("job-19, attempt 1: 'of 19'")
    await_true(lambda: fate(queue, "job-19") is Reason.FINISHED)  # it is idle now
    assert worker.end(number) == 0
    assert worker.out == "".join(f"job-{i}, attempt 1: 'of {i}'\n" for i in range(20))
    assert {fate(queue, f"job-{i}") for i in range(20)} == {Reason.FINISHED}
    assert worker.err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_while_busy_it_finishes_that_job_and_takes_no_other(
    queue: Queue[str], number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is busy for as long as nobody reads what it prints: no pipe holds that much. Unbuffered,
    # Python would lose the rest of a line in whose middle a signal comes.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    queue.execute([operations.enqueue("long", "x" * 500_000), operations.enqueue("next")])
    with subprocess.Popen(
        [sys.executable, PROGRAM, queue.name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            os.read(process.stdout.fileno(), 1)
            process.send_signal(number)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    assert err == b""
    assert len(out) > 500_000
    assert b"next" not in out
    assert fate(queue, "long") is Reason.FINISHED
    assert queue.reserve().id == "next"


def test_a_job_that_fails_goes_back_with_the_error_and_others_come_before_it(
    start: Start, queue: Queue[str], embedded: Backend
) -> None:
    queue.execute([operations.enqueue("bad", "ü"), operations.enqueue("good", "u")])
    worker = start(queue.name, PYTHONIOENCODING="ascii")  # which cannot print it
    worker.prints("good, attempt 1: 'u'")
    await_true(lambda: worker.err.count("job bad failed: UnicodeEncodeError") >= 2)
    assert worker.end() == 0
    assert fate(queue, "good") is Reason.FINISHED
    assert fate(queue, "bad") is Reason.DUPLICATE  # still active
    assert errors(queue, embedded)[b"bad"].startswith(b"UnicodeEncodeError(")
    tries = worker.err.count("\n")
    assert worker.err.count("worker: job bad failed: ") == tries  # a line each

    start(queue.name, PYTHONIOENCODING="utf-8").prints(f"bad, attempt {tries + 1}: 'ü'")
    await_true(lambda: fate(queue, "bad") is Reason.FINISHED)


def test_its_queue_is_the_argument_then_the_environments_then_jobs(
    start: Start, queue: Queue[str], embedded: Backend
) -> None:
    with fresh(embedded.url, "jobs") as jobs, fresh(embedded.url) as named:
        for each in (queue, jobs, named):
            each.enqueue("a", f"in {each.name}")
        workers = [start(queue.name, QUEUE="jobs"), start(QUEUE=named.name), start(QUEUE="")]
        for worker, each in zip(workers, (queue, named, jobs), strict=True):
            worker.prints(f"a, attempt 1: 'in {each.name}'")
            await_true(lambda each=each: fate(each, "a") is Reason.FINISHED)
        assert [worker.end() for worker in workers] == [0, 0, 0]


def test_it_goes_on_when_the_server_is_back(start: Start, short_folder: Path) -> None:
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    program = str(find_program().path)
    with running(program, short_folder, *durable) as url, Queue("q", redis=url) as queue:
        queue.enqueue("before")
        worker = start("q", DURABLEQ_URL=url)
        worker.prints("before, attempt 1: ''")
        await_true(lambda: fate(queue, "before") is Reason.FINISHED)
    with running(program, short_folder, *durable), Queue("q", redis=url) as queue:
        queue.enqueue("after")
        worker.prints("after, attempt 1: ''")
        await_true(lambda: fate(queue, "after") is Reason.FINISHED)
        assert worker.end() == 0
    assert worker.out.count("\n") == 2


MISTAKES: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no server": ([], {"DURABLEQ_URL": "", "DURABLEQ_EMBEDDED": "never"}, "DURABLEQ_URL"),
    "mistaken address": ([], {"DURABLEQ_URL": "unix:///nowhere"}, "unavailable"),
    "mistaken name": (["no name"], {}, "no name"),
}


@pytest.mark.parametrize(("words", "environment", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_ends_it_with_one_line(
    start: Start, queue: Queue[str], words: list[str], environment: dict[str, str], told: str
) -> None:
    worker = start(*words, **environment)
    assert worker.process.wait(20) == 1
    assert worker.err.startswith("worker: ")
    assert worker.err.count("\n") == 1
    assert told in worker.err
    assert worker.out == ""


# As a module


def test_a_handlers_error_is_kept_and_the_job_comes_back(
    module: ModuleType, queue: Queue[str], embedded: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts = []

    def handle(job: Job[str]) -> None:
        attempts.append(job.attempt)
        if job.attempt < 3:
            raise OSError(f"not yet: {job.payload}")
        assert errors(queue, embedded) == {b"a": b"OSError('not yet: of a')"}
        module.told.append(signal.SIGTERM)

    module.handle = handle
    queue.enqueue("a", "of a")
    module.work(queue)
    assert attempts == [1, 2, 3]
    assert fate(queue, "a") is Reason.FINISHED
    line = "worker: job a failed: OSError('not yet: of a')\n"
    assert capsys.readouterr() == ("", line * 2)


def test_it_pauses_after_a_failure_and_gives_up_after_five_attempts(
    module: ModuleType, queue: Queue[str]
) -> None:
    slept = []

    def handle(job: Job[str]) -> None:
        raise OSError

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 5:
            module.told.append(signal.SIGTERM)

    module.handle, module.note, module.PAUSE = handle, lambda text: None, 0.125
    module.time = SimpleNamespace(sleep=sleep)
    queue.enqueue("a")
    module.work(queue)
    assert slept == [0.125] * 5
    assert queue.reserve() is None
    assert [(job.id, job.spent, job.error) for job in queue.failed()] == [("a", 5, "OSError()")]


def test_where_nothing_waits_it_waits_for_a_job(module: ModuleType) -> None:
    asked = []

    class Empty:
        def reserve(self, **given: Any) -> None:
            asked.append(given)
            if len(asked) == 2:
                module.told.append(signal.SIGTERM)

    module.work(Empty())
    assert asked == [{"wait": 1, "lease": 60, "max_attempts": 5, "request": None}] * 2


def test_a_job_that_it_cannot_read_is_failed_and_the_others_go_on(
    module: ModuleType, embedded: Backend, queue: Queue[str]
) -> None:
    queue.execute([operations.enqueue("bad"), operations.enqueue("good")])
    with embedded.client() as raw:
        raw.hset(queue._definition.keys[PARTS.index("payloads")], "bad", b"\xff")
    module.handle, module.note = lambda job: module.told.append(job.id), lambda text: None

    module.work(queue)

    assert module.told == ["good"]
    assert [(job.id, job.reason) for job in queue.failed()] == [("bad", FailureReason.REJECTED)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_is_not_its_own_any_more_is_told_and_left_alone(
    module: ModuleType, queue: Queue[str], fails: bool
) -> None:
    notes = []

    def handle(job: Job[str]) -> None:
        module.told.append(signal.SIGTERM)
        queue.retry("a", 1)  # another's doing: under the next attempt it is another's job
        assert queue.reserve().attempt == 2
        if fails:
            raise OSError

    module.handle, module.note = handle, notes.append
    queue.enqueue("a")
    module.work(queue)
    assert [note for note in notes if "meanwhile" in note] == notes[-1:]
    assert queue.ack("a", 2)


@pytest.mark.parametrize("fails", [False, True])
def test_it_settles_with_the_claim_token(module: ModuleType, fails: bool) -> None:
    settled = []

    class Recorder:
        def reserve(self, **given: Any) -> Job[str]:
            return Job("a", "of a", 3, token="the token")

        def ack(self, id: str, attempt: int, *, token: str, request: None) -> bool:
            settled.append(("ack", id, attempt, token))
            return True

        def retry(self, id: str, attempt: int, *, token: str, error: str, request: None) -> bool:
            settled.append(("retry", id, attempt, token))
            return True

    def handle(job: Job[str]) -> None:
        module.told.append(signal.SIGTERM)
        if fails:
            raise OSError

    module.handle, module.note = handle, lambda text: None
    module.work(Recorder())
    assert settled == [("retry" if fails else "ack", "a", 3, "the token")]


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("verb", ["reserve", "ack", "retry"])
def test_an_unknown_outcome_is_found_out_and_every_call_has_one_effect(
    module: ModuleType,
    queue: Queue[str],
    embedded: Backend,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    delivered: bool,
) -> None:
    monkeypatch.setattr(policy, "PATIENCE", 0.005)
    notes, attempts = [], []

    def handle(job: Job[str]) -> None:
        attempts.append((job.id, job.attempt))
        if verb == "retry" and job.attempt == 1:
            raise OSError
        if job.id == "b":
            module.told.append(signal.SIGTERM)

    def note(text: str) -> None:
        notes.append(text)
        if "going on" in text:
            proxy.come_back()

    module.handle, module.note = handle, note
    queue.execute([operations.enqueue("a"), operations.enqueue("b")])
    with Proxy(embedded.url) as proxy, Queue(queue.name, redis=proxy.url) as far:
        away = {"after" if delivered else "before": proxy.go}
        proxy.fault(verb, delivered=delivered, **away)
        module.work(far)
    if verb == "retry":
        assert attempts == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    else:
        assert attempts == [("a", 1), ("b", 1)]
    assert {fate(queue, id) for id in "ab"} == {Reason.FINISHED}
    assert sum("which may have run" in note for note in notes) == 1
    assert not [note for note in notes if "meanwhile" in note], "the true answer: it was ours"


def test_a_server_that_is_unavailable_is_asked_again(module: ModuleType) -> None:
    answers = [ServerUnavailable("away"), OutcomeUnknown("r", "lost"), ServerUnavailable("a"), 7]
    asked = []

    def call(*args: Any, request: str | None) -> int:
        asked.append((args, request))
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    notes: list[str] = []
    module.note = notes.append
    assert module.answered(call, "x") == 7
    assert asked == [(("x",), None)] * 2 + [(("x",), "r")] * 2
    assert all("\n" not in note and note.endswith("; going on") for note in notes)
    assert len(notes) == 3


def test_told_to_end_it_does_not_wait_for_a_server(module: ModuleType) -> None:
    def call(request: None) -> None:
        assert not module.told, "it asks again"
        module.told.append(signal.SIGTERM)
        raise ServerUnavailable("away")

    with pytest.raises(ServerUnavailable):
        module.answered(call)
