"""Workers that are killed at any moment: every attempt is accounted for, and no job is lost.

No lease is waited for: those that the dead leave are ended by hand.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from support import Backend, Record, await_true

from durableq import FailureReason, Queue, Reason
from durableq.keys import PARTS

KILLS = 80
AT_ONCE = 3
LIMIT = 3
POISON = "3"
"""How the ids of jobs end that no worker survives."""

NURSERY = """
import json, os, random, signal, sys
import redis
from durableq import Queue

def work(name, queue_name, url, log, seed):
    log, chance = os.open(log, os.O_WRONLY | os.O_APPEND), random.Random(seed)

    def say(*words):
        os.write(log, json.dumps(words).encode() + b"\\n")  # at once: it outlives us

    queue = Queue(queue_name, redis=redis.Redis.from_url(url, client_name=name))
    say("open")
    while True:
        say("reserve")
        job = queue.reserve(worker=name, wait=1)
        if job is None:
            continue
        say("reserved", job.id, job.attempt)
        ways = ["ack"] * 4 + ["retry"] * 4 + ["hang"]
        way = "hang" if job.payload == "poison" else chance.choice(ways)
        if way == "hang":
            signal.pause()
        say(way, job.id, job.attempt)
        done = getattr(queue, way)(job.id, job.attempt)
        say("done", job.id, job.attempt, way, done)

for line in sys.stdin:
    what, *words = json.loads(line)
    if what == "wait":
        print(os.waitstatus_to_exitcode(os.waitpid(*words, 0)[1]), flush=True)
    elif pid := os.fork():
        print(pid, flush=True)
    else:
        try:
            work(*words)
        finally:
            os._exit(1)
"""
"""Forks the workers, as starting each anew would take most of the time; it has no queue itself."""


class Nursery:
    def __init__(self) -> None:
        words, pipe = [sys.executable, "-c", NURSERY], subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)

    def ask(self, *words: Any) -> int:
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


class Worker:
    """A process that works until it is killed, and the log that it leaves."""

    def __init__(
        self, nursery: Nursery, number: int, queue: Queue[str], url: str, folder: Path
    ) -> None:
        self.name = f"w{number}"
        self.log = folder / self.name
        self.log.touch()
        self.nursery = nursery
        self.pid = nursery.ask("fork", self.name, queue.name, url, str(self.log), number)

    def said(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def kill(self, raw: redis.Redis) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.nursery.ask("wait", self.pid) == -signal.SIGKILL, "it had not failed by itself"
        # What it had sent may still be on its way; the server has read it once it hangs up.
        await_true(lambda: all(client["name"] != self.name for client in raw.client_list()))


@dataclass
class Held:
    """What a record in the jobs hash says of a job in flight."""

    attempt: int
    spent: int
    deaths: int
    worker: str


@dataclass
class Ledger:
    """All that is known of what happened, from the logs and from the records of the dead."""

    attempts: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    deaths: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    acks: Counter[str] = field(default_factory=Counter)
    seen: set[tuple[str, int, str]] = field(default_factory=set)
    """How each attempt of a job ended."""
    unsaid: int = 0
    """Kills between a call and the log of its answer."""

    def settle(self, worker: Worker, queue: Queue[str], raw: redis.Redis) -> None:
        """Enter all that a dead worker did, and let the lease that it left end."""
        held = {id: job for id, job in in_flight(raw, queue).items() if job.worker == worker.name}
        assert len(held) <= 1, "it had one job at a time"
        said = worker.said()
        for what, *words in said:
            if what == "reserved":
                id, attempt = words
                self.attempts[id].append(attempt)
            elif what == "done":
                id, attempt, way, done = words
                assert done is True, "no lease ended but those of the dead"
                self.enter(way, id, attempt)
        last, *words = said[-1]
        if last in ("ack", "retry") and words[0] not in held:
            self.unsaid += 1
            self.enter(last, *words)  # it was done, and only the log of it is missing
        for id, job in held.items():
            if last == "reserve":
                self.unsaid += 1
                self.attempts[id].append(job.attempt)  # so was this
            assert job.attempt == self.attempts[id][-1]
            assert job.spent == job.attempt, "nothing was released: every attempt counts"
            assert job.deaths == self.deaths[id], "no more and no fewer than there were"
            self.enter("death", id, job.attempt)
            expire(raw, queue, id)

    def enter(self, way: str, id: str, attempt: int) -> None:
        {"ack": self.acks, "retry": self.retries, "death": self.deaths}[way][id] += 1
        self.seen.add((id, attempt, way))


def key(queue: Queue[str], part: str) -> bytes:
    return queue._definition.keys[PARTS.index(part)]


def in_flight(raw: redis.Redis, queue: Queue[str]) -> dict[str, Held]:
    found = {}
    for id, text in raw.hgetall(key(queue, "jobs")).items():
        job = Record.of(text)
        if job.state == "1f":
            found[id.decode()] = Held(int(job.attempt), int(job.spent), int(job.deaths), job.worker)
    return found


def limit_of(id: str) -> int | None:
    return LIMIT if id[-1] in "13579" else None


def expire(raw: redis.Redis, queue: Queue[str], id: str) -> None:
    """End a lease: whoever looks next recovers the job."""
    (member,) = (m for m in raw.zrange(key(queue, "leases"), 0, -1) if m[13:].decode() == id)
    assert raw.zadd(key(queue, "leases"), {member: 1}, xx=True, ch=True) == 1


def test_killed_workers_lose_nothing_and_every_attempt_and_death_is_counted(
    embedded: Backend, short_folder: Path
) -> None:
    chance, ledger, ids = random.Random(1), Ledger(), list[str]()
    raw, queue, nursery = embedded.client(), Queue(redis=embedded.url, lease=3600), Nursery()
    start = lambda number: Worker(nursery, number, queue, embedded.url, short_folder)
    workers = [start(number) for number in range(AT_ONCE)]
    try:
        for number in range(KILLS):
            for _ in range(3):
                id = f"j{len(ids)}"
                payload = "poison" if id.endswith(POISON) else ""
                assert queue.enqueue(id, payload, max_attempts=limit_of(id)) is True
                ids.append(id)
            victim = workers[0]
            await_true(victim.said)
            time.sleep(chance.expovariate(chance.choice([50, 500])))  # no moment is spared
            victim.kill(raw)
            ledger.settle(victim, queue, raw)
            workers = [*workers[1:], start(AT_ONCE + number)]
        while workers:
            await_true(workers[0].said)
            workers[0].kill(raw)
            ledger.settle(workers.pop(0), queue, raw)
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        nursery.process.communicate(timeout=20)

    while job := queue.reserve():
        ledger.attempts[job.id].append(job.attempt)
        assert queue.ack(job.id, job.attempt) is True
        ledger.enter("ack", job.id, job.attempt)

    assert_all_accounted_for(ledger, queue, raw, ids)
    queue.destroy()
    queue.close()
    raw.close()


def assert_all_accounted_for(
    ledger: Ledger, queue: Queue[str], raw: redis.Redis, ids: list[str]
) -> None:
    failed = {job.id: job for job in queue.failed(0, len(ids))}
    assert sum(ledger.deaths.values()) >= KILLS / 4, "kills hit workers that held a job"
    assert ledger.unsaid, "and some that waited for an answer"
    for id in ids:
        runs, limit = ledger.attempts[id], limit_of(id)
        assert sorted(runs) == list(range(1, len(runs) + 1)), "each number once, and none skipped"
        assert len(runs) == ledger.deaths[id] + ledger.retries[id] + ledger.acks[id]
        assert limit is None or len(runs) <= limit
        if ledger.acks[id]:
            assert ledger.acks[id] == 1
            assert (id, len(runs), "ack") in ledger.seen, "and nothing came after it"
            assert id not in failed
            assert queue.wait_for(id, 0) is Reason.FINISHED
        else:
            job = failed.pop(id)  # or it is lost
            assert (job.attempt, job.spent, job.limit) == (limit, limit, limit)
            assert job.deaths == ledger.deaths[id]
            died = (id, limit, "death") in ledger.seen
            assert job.reason is (FailureReason.EXPIRED if died else FailureReason.EXHAUSTED)
    assert failed == {}
    assert not raw.exists(*(key(queue, part) for part in ("jobs", "leases", "waiting", "ranked")))
    assert queue.join(0) is True
