"""What the core costs: calls a second, server time per script call, memory per job.

`python benchmarks/core.py [--jobs N]` starts its own servers and prints three tables. Server time
is the server's own count (INFO commandstats), scripts pipelined by 100; the floor is an empty
script sent with the same keys and arguments. Compare ratios: absolute times are the machine's.
"""

import argparse
import re
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from durableq import Queue, operations
from durableq.delivery import Delivery
from durableq.operations import Operation, Plan
from durableq.program import find_program
from durableq.scripts import script

PAYLOAD = "x" * 100


@contextmanager
def server(*options: str) -> Iterator[tuple[str, str]]:
    """Run a server; yield its unix and its TCP URL."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        path = f"{folder}/s"
        words = ["--port", str(port), "--bind", "127.0.0.1", "--unixsocket", path, "--save", ""]
        words += ["--dir", folder, "--logfile", f"{folder}/log", *options]
        process = subprocess.Popen([str(find_program().path), *words])
        try:
            while not Path(path).exists():
                if process.poll() is not None:
                    raise SystemExit(f"the server ended: {Path(folder, 'log').read_text()}")
                time.sleep(0.01)
            yield f"unix://{path}", f"redis://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def one_at_a_time(url: str, number: int) -> dict[str, float]:
    """Return operations a second of each kind, one call after another."""
    rates = {}
    with Queue(redis=url) as queue:
        ids = [f"job-{i:016d}" for i in range(number)]
        jobs: list[Any] = []
        steps: dict[str, Callable[[int], object]] = {
            "enqueue": lambda i: queue.enqueue(ids[i], PAYLOAD),
            "reserve": lambda i: jobs.append(queue.reserve()),
            "retry": lambda i: queue.retry(jobs[i].id, 1),
            "reserve again": lambda i: queue.reserve(),
            "ack": lambda i: queue.ack(ids[i], 2),
        }
        for name, step in steps.items():
            start = time.perf_counter()
            for i in range(number):
                step(i)
            rates[name] = number / (time.perf_counter() - start)
        queue.destroy()
    return rates


def empty_script(url: str, number: int) -> float:
    """Return calls a second of an empty script with an enqueue's keys and arguments."""
    with Queue(redis=url) as queue, redis.Redis.from_url(url) as client:
        operation = operations.enqueue("job-0000000000000000", PAYLOAD)
        words = list(_delivery(queue, operation).commands()[0])
        words[1] = client.script_load("return 1")
        start = time.perf_counter()
        for _ in range(number):
            client.execute_command(*words)
        rate = number / (time.perf_counter() - start)
        queue.destroy()
    return rate


def _delivery(queue: Queue[Any], operation: Operation) -> Delivery:
    assert queue._codec is not None
    plan = Plan([operation], queue._definition.keys, queue._codec)
    return Delivery(queue.name, plan.calls, queue.client.lanes)


BARE = {
    "enqueue": "call('HINCRBY', META, 'sequence', 1) call('HSET', JOBS, ARGV[6], ARGV[7]) "
    "call('HSET', PAYLOADS, ARGV[6], ARGV[7]) call('RPUSH', WAITING, ARGV[6])",
    "reserve": "local id = call('LPOP', WAITING) call('HGET', JOBS, id) call('HSET', JOBS, id, id) "
    "call('ZADD', LEASES, 'inf', id) return { id, call('HGET', PAYLOADS, id) }",
    "ack": "call('HDEL', JOBS, ARGV[6]) call('HDEL', PAYLOADS, ARGV[6]) "
    "call('ZREM', LEASES, ARGV[6]) call('SADD', RETIRED, ARGV[6])",
}
"""The same changes of data, without a question asked: what any queue of this layout must pay."""


def without_receipt(text: str) -> str:
    """Return a script that neither looks for a receipt nor leaves one."""
    text = text.replace("local number, receipt = receipt_of(LANE)", "local number, receipt = 0")
    return re.sub(r"call\('HSET', RECEIPTS, .*\n", "\n", text)


def server_time(url: str, number: int, kind: str) -> dict[str, float]:
    """Return microseconds of the server per script call, sent 100 at a time.

    `kind` is "whole", "no receipt", "bare" or "empty": which scripts are run.
    """
    used: dict[str, float] = {}
    client = redis.Redis.from_url(url)
    head = script("settings").text.split("local stored")[0]
    with Queue(redis=url) as queue:
        ids = [f"job-{i:016d}" for i in range(number)]
        operation: dict[str, Callable[[int], Operation]] = {
            "enqueue": lambda i: operations.enqueue(ids[i], PAYLOAD),
            "reserve": lambda i: operations.reserve(),
            "retry": lambda i: operations.retry(ids[i], 1),
            "reserve again": lambda i: operations.reserve(),
            "ack": lambda i: operations.ack(ids[i], 2),
            "enqueue more": lambda i: operations.enqueue(f"more-{i:015d}", PAYLOAD),
            "cancel": lambda i: operations.cancel(f"more-{i:015d}"),
        }
        if kind == "bare":
            operation = {name: operation[name] for name in BARE}
        elif kind == "empty":
            operation = {"enqueue": operation["enqueue"]}
        for name, make in operation.items():
            text = script(name.split()[0]).text
            text = without_receipt(text) if kind == "no receipt" else text
            text = head + BARE[name] if kind == "bare" else text
            digest = client.script_load("return 1" if kind == "empty" else text)
            client.config_resetstat()
            for start in range(0, number, 100):
                pipe = client.pipeline(transaction=False)
                deliveries = [_delivery(queue, make(i)) for i in range(start, start + 100)]
                for delivery in deliveries:
                    words = list(delivery.commands()[0])
                    words[1] = digest
                    pipe.execute_command(*words)
                for delivery, reply in zip(deliveries, pipe.execute(), strict=True):
                    delivery.received([reply])  # gives its lane back
            stats: Any = client.info("commandstats")
            used[name] = stats["cmdstat_evalsha"]["usec_per_call"]
        queue.destroy()
    return used


def memory(url: str, number: int) -> tuple[float, float]:
    """Return bytes per waiting job beyond its payload, and per retired 20-character id."""
    client = redis.Redis.from_url(url)

    def used() -> int:
        info: Any = client.info("memory")
        return int(info["used_memory"])

    with Queue(redis=url) as queue:
        ids = [f"{i:020d}" for i in range(number)]
        before = used()
        for start in range(0, number, 10_000):
            queue.execute([operations.enqueue(id, PAYLOAD) for id in ids[start : start + 10_000]])
        waiting = (used() - before) / number - len(PAYLOAD)
        for start in range(0, number, 10_000):
            jobs = queue.execute([operations.reserve()] * len(ids[start : start + 10_000]))
            queue.execute([operations.ack(job.job.id, 1) for job in jobs if job.job])
        retired = (used() - before) / number
        queue.destroy()
    return waiting, retired


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs in the memory table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policies", nargs="*", default=["everysec", "always"])
    given = parser.parse_args()

    print("operations a second, one at a time, median of rounds")
    for policy in given.policies:
        with server("--appendonly", "yes", "--appendfsync", policy) as urls:
            for kind, url in zip(("unix socket", "TCP"), urls, strict=True):
                number = 5_000 if policy == "everysec" else 1_000
                rounds = [one_at_a_time(url, number) for _ in range(given.rounds)]
                floor = statistics.median(empty_script(url, number) for _ in range(given.rounds))
                row = {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}
                cells = "  ".join(f"{name} {rate:,.0f}" for name, rate in row.items())
                print(
                    f"  {policy:9s}{kind:12s} {cells}  | empty script, plain redis-py {floor:,.0f}"
                )

    print("\nserver microseconds per script call above an empty one, pipelined by 100, medians")
    with server("--appendonly", "yes") as (url, _):
        kinds = ("empty", "bare", "no receipt", "whole")
        runs = [{k: server_time(url, 20_000, k) for k in kinds} for _ in range(given.rounds)]
        floor = statistics.median(run["empty"]["enqueue"] for run in runs)
        print(f"  an empty script with the same keys and arguments: {floor:.2f}")
        print(f"  {'':16s}{'whole':>8s}{'without receipt':>18s}{'bare commands':>16s}")
        for name in runs[0]["whole"]:
            row = f"  {name:16s}"
            for kind, width in (("whole", 8), ("no receipt", 18), ("bare", 16)):
                times = [run[kind][name] - floor for run in runs if name in run[kind]]
                row += f"{statistics.median(times):{width}.2f}" if times else ""
            print(row)

    print(f"\nbytes at {given.jobs:,} jobs")
    with server() as (url, _):
        waiting, retired = memory(url, given.jobs)
        print(f"  per waiting job beyond its payload {waiting:.0f}, per retired id {retired:.0f}")


if __name__ == "__main__":
    main()
