"""How soon a sleeping reserve has the job: milliseconds from the call that brings it.

`python benchmarks/wakeup.py [--url URL] [--rounds N]` measures on the embedded server, or on the
one at URL, in a queue of its own. The waiter is another process, which sleeps on the server when
the time begins: at the call of enqueue (retry, ...), or at the end of the lease, counted from the
call that gave it. It ends when the waiter's reserve(wait=) has returned.
"""

import argparse
import asyncio
import math
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from durableq import AsyncQueue, Job, Queue
from durableq.delivery import Call

LEASE = 0.1
WAIT = 30.0


def sync_waiter(name: str, url: str | None, line: Connection) -> None:
    """Reserve and acknowledge a job whenever told to; tell when it came."""
    with Queue(name, redis=url) as queue:
        line.send(None)
        while line.recv():
            job = queue.reserve(wait=WAIT)
            line.send(time.monotonic())
            if job is not None:
                queue.ack(job.id, job.attempt)
            line.send(job is not None)


def async_waiter(name: str, url: str | None, line: Connection) -> None:
    """Do the same by an AsyncQueue."""

    async def work() -> None:
        async with AsyncQueue(name, redis=url) as queue:
            line.send(None)
            while line.recv():
                job = await queue.reserve(wait=WAIT)
                line.send(time.monotonic())
                if job is not None:
                    await queue.ack(job.id, job.attempt)
                line.send(job is not None)

    asyncio.run(work())


def sleepers(queue: Queue[str]) -> int:
    """Return how many clients sleep on the server."""
    info = queue.client.run(queue.name, [Call(None, (), (b"INFO", b"clients"), tokened=False)])[0]
    return int(dict(row.split(b":") for row in info.split() if b":" in row)[b"blocked_clients"])


def held(queue: Queue[str], id: str, lease: float | None = None) -> Job[str]:
    """Return a job in flight."""
    queue.enqueue(id)
    job = queue.reserve(lease=lease)
    assert job is not None
    return job


def retried(queue: Queue[str], id: str) -> Callable[[], object]:
    """Prepare a retry."""
    job = held(queue, id)
    return lambda: queue.retry(job.id, job.attempt)


def released(queue: Queue[str], id: str) -> Callable[[], object]:
    """Prepare a release."""
    job = held(queue, id)
    return lambda: queue.release(job.id, job.attempt)


def redriven(queue: Queue[str], id: str) -> Callable[[], object]:
    """Prepare a redrive."""
    job = held(queue, id)
    queue.fail(job.id, job.attempt)
    return lambda: queue.redrive(job.id)


CASES: dict[str, Callable[[Queue[str], str], Callable[[], object]]] = {
    "enqueue": lambda queue, id: lambda: queue.enqueue(id),
    "retry": retried,
    "release": released,
    "redrive": redriven,
}


def measured(queue: Queue[str], line: Connection, case: str, rounds: int) -> list[float]:
    """Return the milliseconds of each round."""
    times = []
    for number in range(rounds):
        id = f"{case.replace(' ', '-')}-{number}"
        before = sleepers(queue)
        if case in CASES:
            act = CASES[case](queue, id)
            line.send(True)
            while sleepers(queue) <= before:
                time.sleep(0.001)
            start = time.monotonic()
            act()
        else:
            start = time.monotonic() + LEASE
            held(queue, id, LEASE)
            line.send(True)
        end = line.recv()
        if not line.recv():
            raise SystemExit(f"{case}: no job came within {WAIT:g} s")
        times.append((end - start) * 1000)
    return sorted(times)


def percentile(times: list[float], share: float) -> float:
    """Return the smallest of the sorted times that so large a share does not exceed."""
    return times[math.ceil(share * len(times)) - 1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", help="a server's, instead of the embedded one")
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()

    print(f"milliseconds until a sleeping reserve has the job, {given.rounds} rounds each")
    print(f"  {'':16s}{'':8s}{'p50':>8s}{'p99':>8s}{'longest':>9s}")
    waiters: dict[str, Any] = {"sync": sync_waiter, "async": async_waiter}
    spawning = multiprocessing.get_context("spawn")
    for kind, waiter in waiters.items():
        with Queue(redis=given.url) as queue:
            line, there = spawning.Pipe()
            process = spawning.Process(target=waiter, args=(queue.name, given.url, there))
            process.daemon = True
            process.start()
            line.recv()
            try:
                for case in (*CASES, "expiring lease"):
                    times = measured(queue, line, case, given.rounds)
                    half, most = percentile(times, 0.5), percentile(times, 0.99)
                    print(f"  {case:16s}{kind:8s}{half:8.2f}{most:8.2f}{times[-1]:9.2f}")
                line.send(False)
                process.join()
            finally:
                process.kill()
                queue.destroy()


if __name__ == "__main__":
    main()
