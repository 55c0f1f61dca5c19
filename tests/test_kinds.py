"""Faults that other queues had, each as its whole kind, on a real server.

Stuck in flight, ran twice, attempts and dead letters, waits and pools.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from support import Backend, Lab, await_true, running

from durableq import AsyncQueue, FailureReason, Queue, Reason, operations
from durableq.keys import PARTS


def key(queue: Any, part: str) -> bytes:
    return queue._definition.keys[PARTS.index(part)]


def expire(raw: redis.Redis, queue: Any, most: int | None = None) -> int:
    """End the leases that run, or the first few of them, at once; return how many."""
    leases = raw.zrange(key(queue, "leases"), 0, -1)[:most]
    if leases:
        raw.zadd(key(queue, "leases"), {member: at for at, member in enumerate(leases, 1)})
    return len(leases)


def in_flight(raw: redis.Redis, queue: Any) -> int:
    return raw.zcard(key(queue, "leases"))


# Stuck in flight


def test_stuck_in_flight_a_backlog_of_expired_leases_falls_while_more_expire(real: Backend) -> None:
    with real.client() as raw, Queue(redis=real.url, lease=3600) as queue:
        queue.execute([operations.enqueue(f"j{i}") for i in range(2000)])
        queue.execute([operations.reserve()] * 2000)
        assert expire(raw, queue) == 2000
        calls = finished = 0
        while finished < 2000:
            job = queue.reserve()
            calls += 1
            if job is None:  # what is left was held by those that died
                assert expire(raw, queue) > 0
            elif calls % 10:
                finished += queue.ack(job.id, job.attempt)
            else:  # a holder that dies, and with it one more lease that expires
                expire(raw, queue, most=100)
        assert calls < 2400, "every reserve hands out a job, whatever else it has to recover"
        assert in_flight(raw, queue) == 0
        assert queue.reserve() is None
        queue.destroy()


REAPER = """
import sys
from durableq import Queue
queue = Queue(sys.argv[1], redis=sys.argv[2])
print("ready", flush=True)
while True:
    queue.reap()
"""


def test_stuck_in_flight_who_dies_while_it_reaps_holds_up_nobody(real: Backend) -> None:
    chance = random.Random(3)
    with real.client() as raw, Queue(redis=real.url, lease=3600) as queue:
        queue.execute([operations.enqueue(f"j{i}") for i in range(400)])
        for _ in range(6):
            queue.execute([operations.reserve()] * 400)
            words = [sys.executable, "-c", REAPER, queue.name, real.url]
            with subprocess.Popen(words, stdout=subprocess.PIPE) as reaper:
                reaper.stdout.readline()
                expire(raw, queue)
                time.sleep(chance.uniform(0, 0.003))  # anywhere in its work
                reaper.kill()
            while queue.reap().more:
                pass
            assert in_flight(raw, queue) == 0
            assert raw.hlen(key(queue, "jobs")) == raw.llen(key(queue, "waiting")) == 400
        queue.destroy()


# Ran twice


@pytest.mark.parametrize("verb", ["ack", "retry", "fail", "release", "extend"])
def test_ran_twice_the_first_holder_is_refused_even_in_the_same_process(
    real_lab: Lab, verb: str
) -> None:
    queue = real_lab.queue(lease=3600)
    queue.enqueue("a")
    first = queue.reserve()
    expire(real_lab.raw, queue)
    second = queue.reserve()
    assert (second.id, second.attempt) == ("a", 2)
    assert second.token != first.token
    before = real_lab.dump(queue)

    assert getattr(queue, verb)("a", first.attempt) is False
    assert getattr(queue, verb)("a", first.attempt, token=first.token) is False
    assert getattr(queue, verb)("a", second.attempt, token=first.token) is False

    assert real_lab.dump(queue) == before
    assert queue.ack("a", second.attempt, token=second.token) is True


def test_ran_twice_a_frozen_holder_that_thaws_is_refused(real: Backend) -> None:
    code = """
import os, signal, sys
from durableq import Queue
queue = Queue(sys.argv[1], redis=sys.argv[2])
job = queue.reserve()
os.kill(os.getpid(), signal.SIGSTOP)
print(queue.ack(job.id, job.attempt), queue.extend(job.id, job.attempt), flush=True)
"""
    with real.client() as raw, Queue(redis=real.url, lease=3600) as queue:
        queue.enqueue("a")
        words = [sys.executable, "-c", code, queue.name, real.url]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
            _, status = os.waitpid(holder.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            expire(raw, queue)
            job = queue.reserve()
            holder.send_signal(signal.SIGCONT)
            assert holder.stdout.read() == "False False\n"
        assert queue.ack("a", job.attempt) is True
        queue.destroy()


# Attempts and dead letters


def test_attempts_and_dead_letters_an_ack_around_the_end_of_a_lease_counts_or_is_refused(
    real: Backend,
) -> None:
    """It is true if and only if the job is finished: never both finished and failed or waiting."""
    rounds, truths = 400, 0
    stop = threading.Event()
    with real.client() as raw, Queue(redis=real.url, lease=3600, max_attempts=1) as queue:

        def reap() -> None:
            with Queue(queue.name, redis=real.url) as other:
                while not stop.is_set():
                    other.reap()

        with ThreadPoolExecutor(1) as pool:
            reaping = pool.submit(reap)
            for number in range(rounds):
                id = f"j{number}"
                queue.enqueue(id)
                job = queue.reserve()
                member = raw.zrange(key(queue, "leases"), 0, 0)[0]
                seconds, micro = raw.time()
                end = seconds * 1000 + micro // 1000 + number % 3 - 1
                raw.zadd(key(queue, "leases"), {member: end}, xx=True)
                acked = queue.ack(id, job.attempt)
                truths += acked
                wanted = Reason.FINISHED if acked else Reason.FAILED
                assert queue.wait_for(id, 0) is wanted
            stop.set()
            reaping.result()
        assert 0 < truths < rounds, "both were seen"
        assert {job.reason for job in queue.failed(0, rounds)} == {FailureReason.EXPIRED}
        assert len(queue.failed(0, rounds)) == rounds - truths
        queue.destroy()


# Waits and pools


def drop_connections(raw: redis.Redis) -> None:
    raw.client_kill_filter(_type="normal", skipme=True)


def test_waits_and_pools_a_waiter_that_is_dropped_again_and_again_goes_on(
    short_folder: Any, redis_program: str
) -> None:
    with running(redis_program, short_folder) as url, redis.Redis.from_url(url) as raw:
        done: list[str] = []
        with Queue("jobs", redis=url) as queue, ThreadPoolExecutor(1) as pool:

            def work() -> None:
                with Queue("jobs", redis=url) as own:
                    while len(done) < 100:
                        if job := own.reserve(wait=5):
                            assert own.ack(job.id, job.attempt)
                            done.append(job.id)

            working = pool.submit(work)
            for _ in range(5):
                await_true(lambda: raw.info("clients")["blocked_clients"] == 1)
                drop_connections(raw)
            queue.execute([operations.enqueue(f"j{i}") for i in range(100)])
            for _ in range(3):
                drop_connections(raw)
            working.result(timeout=60)
        assert sorted(done) == sorted(f"j{i}" for i in range(100))


def test_waits_and_pools_waiters_take_no_connection_from_other_calls(real: Backend) -> None:
    """However small the user's own pool is, and however many wait."""

    async def main() -> None:
        client = real.async_client(max_connections=5)
        async with AsyncQueue(redis=client, lease=3600) as queue:
            waiters = [asyncio.create_task(queue.reserve(wait=30)) for _ in range(80)]
            raw = real.client()
            blocked = lambda: raw.info("clients")["blocked_clients"] >= 80
            await asyncio.to_thread(await_true, blocked)
            assert all(await asyncio.gather(*(queue.enqueue(f"j{i}") for i in range(100))))
            jobs = await asyncio.gather(*waiters)
            assert len({job.id for job in jobs}) == 80
            assert all(await asyncio.gather(*(queue.extend(j.id, j.attempt) for j in jobs)))
            assert all(await asyncio.gather(*(queue.ack(j.id, j.attempt) for j in jobs)))
            await queue.destroy()
            raw.close()
        await client.aclose()

    asyncio.run(main())
