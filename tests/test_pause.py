"""pause, resume and purge: stopping a queue, and emptying it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support import Backend, Lab, await_true

from durableq import Job, Queue, Reason, operations, policy


def test_a_paused_queue_hands_out_nothing_and_does_all_else(lab: Lab) -> None:
    queue = lab.queue(lease=3600)
    queue.execute([operations.enqueue(id) for id in "abc"])
    held = queue.reserve()

    assert queue.pause() is True
    assert queue.pause() is False

    assert queue.counts().paused is True
    assert queue.reserve() is None
    outcome = queue.execute(operations.reserve())
    assert (bool(outcome), outcome.reason) == (False, Reason.PAUSED)
    assert queue.enqueue("d") is True
    assert queue.extend("a", held.attempt) is True
    assert queue.ack("a", held.attempt) is True
    assert queue.cancel("b") is True
    assert queue.resume() is True
    assert queue.resume() is False
    assert [queue.reserve().id for _ in range(2)] == ["c", "d"]


def test_leases_and_delays_end_while_it_is_paused(lab: Lab) -> None:
    queue = lab.queue(lease=3600, max_attempts=1)
    queue.enqueue("dies")
    queue.enqueue("later", delay=3600)
    queue.reserve()
    queue.pause()
    for key in ("leases", "delayed"):
        for member in lab.raw.zrange(lab.key(queue, key), 0, -1):
            lab.raw.zadd(lab.key(queue, key), {member: 1})

    outcome = queue.execute(operations.reserve())

    assert outcome.reason is Reason.PAUSED
    assert [failure.id for failure in outcome.failed] == ["dies"]
    assert queue.get("later").state is Reason.WAITING


def test_it_is_paused_for_everybody_and_stays_so(lab: Lab) -> None:
    queue = lab.queue("shared")
    queue.enqueue("a")
    queue.pause()

    other = lab.queue("shared")

    assert other.reserve() is None
    assert other.resume() is True
    assert queue.reserve() == Job("a", "", 1)


@pytest.mark.parametrize("number", [1, 3])
def test_resume_wakes_who_waits(
    real: Backend, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(policy, "LONGEST_SLEEP", 60)  # who is not woken does not look again
    with Queue(redis=real.url) as queue, ThreadPoolExecutor(number) as pool:
        queue.execute([operations.enqueue(f"j{each}") for each in range(number)])
        queue.pause()
        waiting = [pool.submit(queue.reserve, wait=30) for _ in range(number)]
        with real.client() as raw:
            await_true(lambda: raw.info("clients")["blocked_clients"] == number)
            before = commands(raw)
            queue.resume()
            ids = {each.result(timeout=20).id for each in waiting}
            assert ids == {f"j{each}" for each in range(number)}
            assert commands(raw) - before < 100
        queue.destroy()


def test_who_waits_while_it_is_paused_does_not_spin(real: Backend) -> None:
    """A ring that came in the pause wakes one waiter, which must not ring for the next."""
    with Queue(redis=real.url) as queue, ThreadPoolExecutor(3) as pool, real.client() as raw:
        queue.enqueue("a")
        queue.pause()
        before = commands(raw)

        waiting = [pool.submit(queue.reserve, wait=1) for _ in range(3)]

        assert [each.result(timeout=20) for each in waiting] == [None] * 3
        assert commands(raw) - before < 200
        queue.destroy()


def commands(raw: Any) -> int:
    return int(raw.info("stats")["total_commands_processed"])


def test_purge_cancels_what_waits_and_is_delayed(lab: Lab) -> None:
    queue = lab.queue(capacity=10)
    for id in ("held", "kept", "w1", "w2", "high", "low", "free"):
        queue.enqueue(
            id, priority={"high": 5, "low": -5, "held": 9, "kept": 8, "free": 7}.get(id, 0)
        )
    queue.enqueue("later", delay=3600)
    for id in ("held", "kept", "free"):
        assert queue.reserve().id == id
    queue.release("free", 1)
    queue.fail("kept", 1)

    assert queue.purge() == 6
    assert queue.purge() == 0

    counts = queue.counts()
    assert (counts.waiting, counts.delayed, counts.in_flight, counts.failed) == (0, 0, 1, 1)
    assert queue.reserve() is None
    assert queue.wait_for("later", timeout=0) is Reason.CANCELLED
    assert queue.ack("held", 1) is True
    for part in ("waiting", "front", "ranked", "delayed", "jobs"):
        assert lab.raw.exists(lab.key(queue, part)) == 0


@pytest.mark.parametrize("number", [249, 250, 251, 1100])
def test_purge_goes_on_past_one_step(lab: Lab, number: int) -> None:
    queue = lab.queue()
    queue.execute(
        [
            operations.enqueue(f"j{at}", priority=at % 3 - 1, delay=3600 * (at % 2))
            for at in range(number)
        ]
    )

    assert queue.purge() == number
    assert queue.counts().retired == number
    assert queue.join(timeout=0) is True


def test_purge_leaves_what_comes_later(real: Backend) -> None:
    """Jobs that are enqueued while it goes on stay, wherever they are put."""
    with Queue(redis=real.url) as queue, Queue(queue.name, redis=real.url) as other:
        queue.execute([operations.enqueue(f"j{at}", priority=at % 2) for at in range(600)])
        steps = iter(range(100))
        run = queue.client.run

        def slower(*args: Any) -> Any:
            replies = run(*args)
            number = next(steps)
            with real.client() as raw:  # the next millisecond
                then = raw.time()
                while raw.time() < (then[0], then[1] + 2000):
                    pass
            for at in range(3):
                other.enqueue(f"new{number}-{at}", priority=2 * (at - 1), delay=3600 * (at == 2))
            return replies

        queue.client.run = slower
        assert queue.purge() == 600
        del queue.client.run
        made = next(steps)
        counts = queue.counts()
        assert counts.waiting == 2 * made
        assert counts.delayed == made
        queue.destroy()


def test_room_that_a_purge_makes_is_rung_for(real: Backend) -> None:
    with Queue(redis=real.url, capacity=3) as queue, ThreadPoolExecutor(1) as pool:
        queue.execute([operations.enqueue(id) for id in "abc"])
        with real.client() as raw:
            waiting = pool.submit(queue.enqueue, "d", wait=30)
            while not any(client["cmd"] == "blmove" for client in raw.client_list()):
                pass

        assert queue.purge() >= 3
        assert waiting.result(timeout=20) is True
        queue.destroy()
