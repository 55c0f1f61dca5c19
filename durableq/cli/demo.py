"""`durableq demo`: a folder's files hashed by worker processes while the server is killed.

It runs on an embedded server of its own in a temporary folder, so that no queue of the user's is
touched, and ends it at the end. The workers are plain loops over reserve and ack, to be read.
"""

import contextlib
import hashlib
import logging
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, cast

import redis
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from durableq.codecs import BYTES
from durableq.embedded import Embedded
from durableq.operations import enqueue
from durableq.queue import Queue

_QUEUE = "demo"
_CHUNK = 1000
_PATIENCE = 300.0
"""Seconds without any progress after which the demo gives up on the missing jobs."""


def main(folder: Path, workers: int) -> int:
    """Run the demo and print its table; return the exit code."""
    if not folder.is_dir():
        print(f"durableq: there is no folder {folder.absolute()}", file=sys.stderr)
        return 2
    files = sorted(_files(folder))
    if not files:
        print(f"durableq: there are no files in {folder.absolute()}", file=sys.stderr)
        return 2
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _demo(console, folder, files, workers)
    except KeyboardInterrupt:
        print("durableq: interrupted", file=sys.stderr)
        return 130


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _demo(console: Console, folder: Path, files: list[str], workers: int) -> int:
    with _own_server() as server, contextlib.ExitStack() as stack:
        queue = stack.enter_context(Queue(_QUEUE, codec=BYTES))
        crew = _Crew(workers)
        stack.callback(crew.end)
        console.print(
            f"{len(files)} files in {folder.absolute()}, one job each; {workers} worker processes; "
            f"a {_kind(server)} with appendfsync always",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )
        ledger = _Ledger()
        with _progress(console) as progress:
            _run(queue, server, files, crew, ledger, progress)
    return _report(console, files, workers, ledger)


def _files(folder: Path) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = os.path.join(path, name)
            if os.path.isfile(file):
                yield file


def digest(file: str) -> tuple[str, int]:
    """Return the SHA-256 and the size of a file, or why it cannot be read, and -1."""
    try:
        with open(file, "rb") as stream:
            found = hashlib.file_digest(stream, "sha256")
            return found.hexdigest(), stream.tell()
    except OSError as error:
        return error.strerror or str(error), -1


@dataclass(slots=True)
class _Ledger:
    """What was accepted, and every completion that a worker was granted."""

    accepted: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    results: dict[str, tuple[str, int]] = field(default_factory=dict)
    by_worker: Counter[int] = field(default_factory=Counter)


def _run(
    queue: Queue[bytes],
    server: Embedded,
    files: list[str],
    crew: "_Crew",
    ledger: _Ledger,
    progress: Progress,
) -> None:
    bar = progress.add_task("completed", total=len(files))
    half = len(files) // 2

    def accept(start: int, end: int) -> None:
        for first in range(start, end, _CHUNK):
            jobs = [(f"file-{i}", files[i]) for i in range(first, min(first + _CHUNK, end))]
            # As bytes, since a file's name need not be text.
            outcomes = queue.execute([enqueue(id, os.fsencode(file)) for id, file in jobs])
            ledger.accepted |= {id for (id, _), ok in zip(jobs, outcomes, strict=True) if ok}

    def collect(until: float) -> None:
        for worker, id, result in crew.completions():
            ledger.done[id] += 1
            ledger.results[id] = result
            ledger.by_worker[worker] += 1
            progress.update(bar, completed=len(ledger.done))
            if ledger.done.total() >= until:
                break

    accept(0, half)
    if half > 1:
        collect(half // 2)
    killed = time.monotonic()
    with redis.Redis(unix_socket_path=str(server.socket)) as admin:
        info: Any = admin.info("server")
    os.kill(info["process_id"], signal.SIGKILL)
    progress.console.print(
        f"SIGKILL to the server (process {info['process_id']}): {half} jobs accepted, "
        f"{len(ledger.done)} of them known to be completed",
        soft_wrap=True,
    )
    accept(half, len(files))  # whoever calls first brings the server back
    progress.console.print(
        f"the server is back with its data after {time.monotonic() - killed:.2f} s"
    )
    collect(len(files))
    crew.stop()
    collect(math.inf)  # nobody may have completed a job twice: hear them out


class _Crew:
    """The worker processes, and the pipes on which they tell what they completed."""

    def __init__(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        # Ctrl-C is for the parent, which ends its workers in order: they inherit not to hear it.
        heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._stop = context.Event()
        self._pipes: dict[Any, int] = {}
        self._processes: list[BaseProcess] = []
        for worker in range(number):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(there, self._stop), daemon=True)
            process.start()
            there.close()
            self._pipes[here] = worker
            self._processes.append(process)
        signal.signal(signal.SIGINT, heard)

    def completions(self) -> Iterator[tuple[int, str, tuple[str, int]]]:
        """Yield worker, id and result of each completion, until all workers have ended.

        Ends also when nothing has come for five minutes: then something is lost.
        """
        while self._pipes and (ready := wait(list(self._pipes), _PATIENCE)):
            for pipe in cast("list[Connection]", ready):
                try:
                    id, result = pipe.recv()
                except EOFError:
                    del self._pipes[pipe]
                else:
                    yield self._pipes[pipe], id, result

    def stop(self) -> None:
        """Let the workers end once nothing waits."""
        self._stop.set()

    def end(self) -> None:
        """End the workers: those that are done end by themselves, the others are killed."""
        for process in self._processes:
            process.join(0 if self._pipes else 5)
            process.kill()
            process.join()


def _work(tell: Connection, stop: Event) -> None:
    """Reserve, hash, acknowledge, until told to stop and nothing waits."""
    _silence()
    parent = multiprocessing.parent_process()
    with Queue(_QUEUE, codec=BYTES) as queue, contextlib.suppress(BrokenPipeError):
        while parent is not None and parent.is_alive():  # else nobody listens
            job = queue.reserve()
            if job is not None:
                result = digest(os.fsdecode(job.payload))
                if queue.ack(job.id, job.attempt, token=job.token):
                    tell.send((job.id, result))
            elif stop.is_set():
                return
            else:
                time.sleep(0.005)


def _silence() -> None:
    # The embedded server is what the demo shows; its warning is for those who did not ask for it.
    logging.getLogger("durableq").setLevel(logging.ERROR)


@contextlib.contextmanager
def _own_server() -> Iterator[Embedded]:
    """Make the environment, and so the workers', name an embedded server in a temporary folder."""
    _silence()
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="durableq-") as home:
        os.environ["DURABLEQ_HOME"] = home
        os.environ.pop("DURABLEQ_URL", None)
        os.environ.pop("DURABLEQ_EMBEDDED", None)
        server = Embedded.of_environment()
        try:
            yield server
        finally:
            server.stop()  # the workers were killed, perhaps while one of them was starting it
            os.environ.clear()
            os.environ.update(before)


def _kind(server: Embedded) -> str:
    with redis.Redis(unix_socket_path=str(server.socket)) as admin:
        info: Any = admin.info("server")
    version = info.get("valkey_version")
    return f"Valkey {version}" if version else f"Redis {info['redis_version']}"


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


def _report(console: Console, files: list[str], workers: int, ledger: _Ledger) -> int:
    """Print the table; return the exit code."""
    expected = {f"file-{i}": digest(file) for i, file in enumerate(files)}
    lost = ledger.accepted - set(ledger.done)
    doubled = [id for id, times in ledger.done.items() if times > 1]
    wrong = [id for id, result in ledger.results.items() if result != expected[id]]
    shares = ", ".join(str(ledger.by_worker[worker]) for worker in range(workers))
    table = Table(show_header=False)
    for name, value, bad in (
        ("accepted", f"{len(ledger.accepted)} of {len(files)}", len(ledger.accepted) < len(files)),
        ("completed", f"{len(ledger.done)} (by worker: {shares})", False),
        ("lost", str(len(lost)), bool(lost)),
        ("doubled", str(len(doubled)), bool(doubled)),
        ("unlike the sequential pass", str(len(wrong)), bool(wrong)),
    ):
        table.add_row(name, f"[bold red]{value}[/]" if bad else f"[green]{value}[/]")
    console.print(table)
    return 1 if lost or doubled or wrong or len(ledger.accepted) < len(files) else 0
