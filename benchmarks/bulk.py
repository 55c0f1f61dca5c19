"""What many at once cost: jobs a second, one call against its floor, a job's life, other clients.

`python benchmarks/bulk.py [--jobs N] [--rounds N]` starts its own servers, with append-only files,
and prints four tables, medians of rounds. In each the floor is measured in the same run, in turns:
for a single enqueue an empty script sent by plain redis-py with the same keys and arguments; for
the life of a job the very commands that the scripts have written to the append-only file, sent
without scripts as pipelines.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import redis
from core import PAYLOAD, _delivery, server
from redis.client import Pipeline

from durableq import Queue, operations
from durableq.keys import PARTS

BATCH = 100


def batches(items: list[Any], size: int = BATCH) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def names(number: int, first: str = "job-") -> list[str]:
    """Return ids of 20 characters."""
    return [f"{first}{i:016d}" for i in range(number)]


def rates(url: str, number: int) -> dict[str, float]:
    """Return jobs a second: by 100 a call, a turn of 100, and lists of any length."""
    found: dict[str, float] = {}
    with Queue(redis=url) as queue:

        def clock(name: str, step: Callable[[], object]) -> None:
            start = time.perf_counter()
            step()
            found[name] = number / (time.perf_counter() - start)

        def turns() -> None:
            done: list[Any] = []
            while True:
                done = queue.exchange(done, BATCH).jobs
                if not done:
                    return

        jobs = [(id, PAYLOAD) for id in names(number)]
        more = [(id, PAYLOAD) for id in names(number, "let-")]
        by_hundreds = list(batches(jobs))
        clock("enqueue_many by 100", lambda: [queue.enqueue_many(some) for some in by_hundreds])
        clock("exchange by 100", turns)
        clock("enqueue_many", lambda: queue.enqueue_many(more))
        held: list[Any] = []
        clock("reserve_many", lambda: held.extend(queue.reserve_many(number)))
        clock("ack_many", lambda: queue.ack_many(held))
        queue.destroy()
    return found


def single(url: str, number: int) -> tuple[float, float]:
    """Return the median microseconds of an enqueue, and of an empty script, called in turns."""
    ours, floor = [], []
    with Queue(redis=url) as queue, redis.Redis.from_url(url) as client:
        queue.counts()
        words = list(_delivery(queue, operations.enqueue(names(1)[0], PAYLOAD)).commands()[0])
        words[1] = client.script_load("return 1")
        for id in names(number):
            start = time.perf_counter()
            queue.enqueue(id, PAYLOAD)
            between = time.perf_counter()
            client.execute_command(*words)
            ours.append(between - start)
            floor.append(time.perf_counter() - between)
        queue.destroy()
    return statistics.median(ours) * 1e6, statistics.median(floor) * 1e6


class Meter:
    """What a server uses: microseconds of processor time, and bytes of its append-only file."""

    def __init__(self, url: str) -> None:
        self.raw = redis.Redis.from_url(url)
        self._file = next(Path(url.removeprefix("unix://")).parent.glob("appendonlydir/*.incr.aof"))

    def cpu(self) -> float:
        info: Any = self.raw.info("cpu")
        used: float = info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]
        return used * 1e6

    def measure(self, step: Callable[[Any], object], every: list[Any]) -> tuple[float, bytes]:
        """Do `step` with each; return the time that it took of the server, and what was written."""
        size, cpu = self._file.stat().st_size, self.cpu()
        for some in every:
            step(some)
        return self.cpu() - cpu, self._file.read_bytes()[size:]


def scripts(text: bytes) -> Iterator[list[list[Any]]]:
    """Return the commands that each script has written to an append-only file."""
    some: list[list[Any]] = []
    at = 0

    def number() -> int:
        nonlocal at
        start, at = at + 1, text.index(b"\r\n", at) + 2
        return int(text[start : at - 2])

    while at < len(text):
        words = []
        for _ in range(number()):
            size = number()
            words.append(text[at : at + size])
            at += size + 2
        if words[0] == b"EXEC":
            yield some
        some = [] if words[0] in (b"MULTI", b"EXEC", b"SELECT") else [*some, words]


Costs = dict[str, tuple[float, float]]


def life(url: str, number: int) -> tuple[Costs, Costs]:
    """Return of each part of a job's life its microseconds and bytes: ours, and bare commands."""
    meter, jobs = Meter(url), [(id, PAYLOAD) for id in names(number)]
    held: list[Any] = []
    ours, bare, texts = {}, {}, {}
    with Queue(redis=url) as queue:
        payloads = queue._definition.keys[PARTS.index("payloads")]
        steps: dict[str, Callable[[list[Any]], object]] = {
            "enqueue": queue.enqueue_many,
            "reserve": lambda some: held.extend(queue.reserve_many(len(some))),
            "ack": queue.ack_many,
        }
        for part, step in steps.items():
            every = list(batches(held if part == "ack" else jobs))
            time_used, texts[part] = meter.measure(step, every)
            ours[part] = (time_used / number, len(texts[part]) / number)
        queue.destroy()
    for part, text in texts.items():
        pipes, ids = [], iter(names(number))
        for some in scripts(text):
            pipe = meter.raw.pipeline(transaction=False)
            if part == "reserve":  # which tells the payloads, too
                some.insert(0, ["HMGET", payloads, *islice(ids, BATCH)])
            for words in some:
                pipe.execute_command(*words)  # type: ignore[no-untyped-call]
            pipes.append(pipe)
        time_used, written = meter.measure(Pipeline.execute, pipes)
        bare[part] = (time_used / number, len(written) / number)
    meter.raw.flushall()
    return ours, bare


def ping(url: str, line: Connection) -> None:
    """Ask the server again and again how it is, until told to stop; send the times it took."""
    with redis.Redis.from_url(url) as client:
        times = []
        client.ping()
        line.send(None)
        while not line.poll():
            start = time.perf_counter()
            client.ping()
            times.append(time.perf_counter() - start)
    line.send(times)


def others(url: str, number: int) -> dict[str, tuple[float, float, float]]:
    """Return the milliseconds (median, 99th of 100, longest) of another client's PING.

    While nothing else is done, and while many jobs are enqueued, reserved, settled.
    """
    found: dict[str, tuple[float, float, float]] = {}
    with Queue(redis=url) as queue:
        jobs, held = [(id, PAYLOAD) for id in names(number)], []
        steps: dict[str, Callable[[], object]] = {
            "nothing": lambda: time.sleep(2),
            "enqueue_many": lambda: queue.enqueue_many(jobs),
            "reserve_many": lambda: held.extend(queue.reserve_many(number)),
            "ack_many": lambda: queue.ack_many(held),
        }
        for name, step in steps.items():
            ours, theirs = multiprocessing.Pipe()
            other = multiprocessing.Process(target=ping, args=(url, theirs))
            other.start()
            ours.recv()
            step()
            ours.send(None)
            times = sorted(ours.recv())
            other.join()
            worst = (times[len(times) // 2], times[len(times) * 99 // 100], times[-1])
            found[name] = (worst[0] * 1e3, worst[1] * 1e3, worst[2] * 1e3)
        queue.destroy()
    return found


def median_of(rounds: list[Any]) -> Any:
    """Return the median of numbers, or of each place of dicts or tuples of them."""
    if isinstance(rounds[0], dict):
        return {name: median_of([each[name] for each in rounds]) for name in rounds[0]}
    if isinstance(rounds[0], tuple):
        return tuple(median_of(list(each)) for each in zip(*rounds, strict=True))
    return statistics.median(rounds)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()

    def rounds(measure: Callable[..., Any], number: int) -> Any:
        options = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
        found = []
        for _ in range(given.rounds):
            with server(*options) as (url, _tcp):
                found.append(measure(url, number))
        return median_of(found)

    print("jobs a second, one process")
    for name, rate in rounds(rates, given.jobs).items():
        print(f"  {name:22s}{rate:10,.0f}")

    ours, floor = rounds(single, given.jobs // 3)
    print("\nmicroseconds of one enqueue, and of an empty script with its keys and arguments")
    print(f"  {ours:.1f} and {floor:.1f}: {ours / floor:.2f} times")

    durable, bare = rounds(life, given.jobs)
    print(f"\na job's life in batches of {BATCH}: server microseconds and bytes written, of a job")
    print(f"  {'':10s}{'durableq':>16s}{'bare commands':>18s}{'times':>8s}")
    every = [*durable, "all"]
    for costs in (durable, bare):
        costs["all"] = tuple(map(sum, zip(*costs.values(), strict=True)))
    for part in every:
        (cost, size), (least, least_size) = durable[part], bare[part]
        print(
            f"  {part:10s}{cost:8.2f} us {size:4.0f} B{least:10.2f} us {least_size:4.0f} B"
            f"{cost / least:8.2f}"
        )

    number = 10 * given.jobs
    print(f"\nmilliseconds of another client's PING, while {number:,} jobs go through a call")
    print(f"  {'':14s}{'median':>8s}{'99th of 100':>14s}{'longest':>10s}")
    for name, (middle, late, longest) in rounds(others, number).items():
        print(f"  {name:14s}{middle:8.2f}{late:14.2f}{longest:10.2f}")


if __name__ == "__main__":
    main()
