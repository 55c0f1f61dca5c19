"""What calls cost as a queue grows: server time of single calls, and what is left behind.

`python benchmarks/growth.py [--jobs N]` starts its own server and prints the table of
docs/growth.md: microseconds of server time of single calls, as the server itself counts them (INFO
latencystats), on queues of N / 100, N / 10 and N waiting jobs (N is a million). Then what must not
grow, or stall. It takes three minutes or more, and 600 MB of memory, for a million.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import redis
from core import PAYLOAD, server

from durableq import Queue, operations
from durableq.keys import PARTS

MOST_SAMPLES = 1000


def say(text: str) -> None:
    """Tell what is going on."""
    print(f"  {text:<70}", end="\r", file=sys.stderr, flush=True)


def chunks(every: Iterable[Any], size: int = 16_000) -> Iterator[list[Any]]:
    rest = iter(every)
    while chunk := list(islice(rest, size)):
        yield chunk


class Meter:
    """The server time of script calls, by the server's own count."""

    def __init__(self, raw: redis.Redis) -> None:
        self.raw = raw
        raw.config_set("latency-tracking-info-percentiles", "50 99 100")

    def measure(self, calls: Iterable[Callable[[], object]]) -> str:
        """Run calls; tell the microseconds of their scripts: median, 99th percentile and most."""
        while self.raw.info("memory")["lazyfree_pending_objects"]:
            time.sleep(0.1)  # a queue that was destroyed is freed still
        self.raw.config_resetstat()
        for call in calls:
            call()
        stats: Any = self.raw.info("latencystats")
        times = stats["latency_percentiles_usec_evalsha"]
        return " / ".join(f"{times[name]:.0f}" for name in ("p50", "p99", "p100"))


def apart(process: int) -> None:
    """Let the server and this program run on different processors, where that can be told."""
    if hasattr(os, "sched_setaffinity") and len(processors := sorted(os.sched_getaffinity(0))) > 1:
        os.sched_setaffinity(process, processors[-1:])
        os.sched_setaffinity(0, processors[:-1])


def filled(url: str, number: int, **settings: Any) -> Queue[str]:
    """Return a queue with that many waiting jobs."""
    queue = Queue(redis=url, **settings)
    done = 0
    for chunk in chunks(range(number)):
        queue.execute([operations.enqueue(f"job-{at:016d}", PAYLOAD) for at in chunk])
        done += len(chunk)
        say(f"{number:,} waiting jobs: {done:,} enqueued")
    return queue


def single_calls(url: str, meter: Meter, number: int) -> dict[str, str]:
    """Return the times of every operation on a queue of this many waiting jobs."""
    queue = filled(url, number)
    chance, samples = random.Random(1), min(MOST_SAMPLES, number // 20)
    ids = [f"job-{at:016d}" for at in chance.sample(range(number // 2, number), 4 * samples)]
    held: list[Any] = []
    at = iter(range(10**9))
    empty = meter.raw.script_load("return 1")
    kinds: dict[str, Callable[[], object]] = {
        "an empty script, for comparison": lambda: meter.raw.evalsha(empty, 0),
        "enqueue": lambda: queue.enqueue(f"new-{next(at)}", PAYLOAD),
        "cancel, a random job": lambda: queue.cancel(ids.pop()),
        "reschedule, a random job to another priority": lambda: queue.reschedule(
            ids.pop(), priority=chance.randrange(-9, 10)
        ),
        "reschedule, a random job to the tail": lambda: queue.reschedule(ids.pop(), delay=0),
        "reserve": lambda: held.append(queue.reserve(lease=3600)),
        "extend": lambda: queue.extend(chance.choice(held).id, 1, 60),
        "retry": lambda: queue.retry((job := held.pop()).id, job.attempt),
        "retry, with a delay": lambda: queue.retry((job := held.pop()).id, job.attempt, delay=60),
        "ack": lambda: queue.ack((job := held.pop()).id, job.attempt),
        "counts": queue.counts,
        "get": lambda: queue.get(ids[-1]),
        "position, of a random job": lambda: queue.position(chance.choice(ids)),
        "peek(10)": lambda: queue.peek(10),
        "jobs, a page of 100": lambda: queue.jobs("waiting"),
    }
    found = {}
    for name, call in kinds.items():
        say(f"{number:,} waiting jobs: {name}")
        many = samples // 4 if "retry" in name or name == "ack" else samples
        found[name] = meter.measure([call] * many)
    queue.destroy()
    return found


def rounds(url: str, raw: redis.Redis, number: int, parked: int) -> str:
    """Enqueue and cancel a job, again and again; tell what is left of it."""
    queue = filled(url, parked, capacity=parked + 10)
    most = 0
    keys = dict(zip(PARTS, queue._definition.keys, strict=True))
    for chunk in chunks(range(number), 4000):
        steps = [
            (operations.enqueue(f"r-{at}", PAYLOAD), operations.cancel(f"r-{at}")) for at in chunk
        ]
        assert all(queue.execute([operation for pair in steps for operation in pair]))
        most = max(most, raw.llen(keys["waiting"]) + raw.llen(keys["front"]))
        say(f"{chunk[-1] + 1:,} rounds of enqueue and cancel behind {parked:,} jobs")
    left = {part: raw.memory_usage(key, samples=0) or 0 for part, key in keys.items()}
    retired = left["retired"] + left["cancelled"]
    others = sum(left.values()) - retired - left["jobs"] - left["payloads"]
    queue.destroy()
    return (
        f"{number:,} rounds of enqueue and cancel behind {parked:,} waiting jobs: at most {most:,} "
        f"members in the lists; {retired / 1e6:.1f} MB of retired ids, {others / 1e6:.2f} MB in "
        "lists, receipts and settings"
    )


def drained(queue: Queue[str], meter: Meter, number: int) -> str:
    """Reserve so many jobs, one at a time."""
    say(f"reserving {number:,} jobs")
    return meter.measure([lambda: queue.execute(operations.reserve())] * number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--calls", action="store_true", help="the table of single calls alone")
    given = parser.parse_args()
    number = given.jobs
    sizes = [number // 100, number // 10, number]
    with server() as (url, _), redis.Redis.from_url(url) as raw:
        apart(int(raw.info("server")["process_id"]))
        meter = Meter(raw)
        tables = [single_calls(url, meter, size) for size in sizes]
        print("Server time of one call in microseconds: median / 99th percentile / most.\n")
        print("| call | " + " | ".join(f"{size:,} waiting" for size in sizes) + " |")
        print("|---|" + "---:|" * len(sizes))
        for name in tables[0]:
            print(f"| {name} | " + " | ".join(table[name] for table in tables) + " |")
        if given.calls:
            return
        print(f"\n- {rounds(url, raw, number, 0)}.")
        print(f"- {rounds(url, raw, number // 10, number // 100)}.")

        queue = filled(url, number)
        ids = [f"job-{at:016d}" for at in range(number)]
        random.Random(2).shuffle(ids)
        say(f"cancelling all but ten of {number:,} jobs")
        cancels = [
            lambda ids=chunk: queue.execute([operations.cancel(id) for id in ids])
            for chunk in chunks(ids[: number - 10], 5000)
        ]
        print(
            f"- All but ten of {number:,} jobs cancelled in random order, in batches of 250: "
            f"{meter.measure(cancels)}; then the ten reserved: {drained(queue, meter, 10)}."
        )
        queue.destroy()

        queue = Queue(redis=url)
        due = number // 10
        for chunk in chunks(range(due)):
            queue.execute([operations.enqueue(f"d-{at}", delay=3600) for at in chunk])
        key = queue._definition.keys[PARTS.index("delayed")]
        for chunk in chunks(raw.zrange(key, 0, -1)):
            raw.zadd(key, dict.fromkeys(chunk, 1))
        print(
            f"- {due:,} delayed jobs due at once, reserved one by one: "
            f"{drained(queue, meter, due)}."
        )
        queue.destroy()


if __name__ == "__main__":
    main()
