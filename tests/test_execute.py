import asyncio
import gc
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import Model, observed
from support import Backend, Lab, dump

from durableq import AsyncQueue, InvalidName, Job, Queue, Reason, operations
from durableq.operations import ack, cancel, enqueue, reserve, retry


def test_one_operation_gives_one_outcome(lab: Lab) -> None:
    queue = lab.queue()

    outcome = queue.execute(enqueue("a", "A"))

    assert outcome
    assert outcome.reason is Reason.DONE
    reserved = queue.execute(reserve())
    assert reserved.job == Job("a", "A", 1)
    assert not queue.execute(reserve())
    assert queue.execute(ack("a", 1, token=reserved.job.token))


def test_many_run_as_if_one_after_another(lab: Lab) -> None:
    queue = lab.queue(capacity=2)

    outcomes = queue.execute(
        [
            enqueue("a", "A"),
            enqueue("a", "A"),
            enqueue("b", "B"),
            enqueue("c", "C"),
            reserve(),
            reserve(),
            reserve(),
            ack("a", 1),
            ack("a", 1),
            enqueue("c", "C"),
            retry("b", 1),
            retry("b", 1),
            cancel("b"),
            cancel("b"),
            reserve(),
            enqueue("a"),
            enqueue("b"),
        ]
    )

    assert [outcome.reason for outcome in outcomes] == [
        Reason.DONE,
        Reason.DUPLICATE,
        Reason.DONE,
        Reason.FULL,
        Reason.DONE,
        Reason.DONE,
        Reason.EMPTY,
        Reason.DONE,
        Reason.FINISHED,
        Reason.DONE,
        Reason.DONE,
        Reason.WAITING,
        Reason.DONE,
        Reason.CANCELLED,
        Reason.DONE,
        Reason.FINISHED,
        Reason.CANCELLED,
    ]
    assert outcomes[14].job == Job("c", "C", 1)


def test_nothing_to_do_is_no_outcome(lab: Lab) -> None:
    assert lab.queue().execute([]) == []


def test_more_than_a_batch_and_more_than_a_window(lab: Lab) -> None:
    queue = lab.queue()
    ids = [f"j{i}" for i in range(2500)]

    assert all(queue.execute([enqueue(id) for id in ids]))
    jobs = [outcome.job for outcome in queue.execute([reserve() for _ in ids])]
    assert [job.id for job in jobs] == ids
    mixed = [op for id in ids for op in (retry(id, 1), cancel(id))][:600]
    assert all(queue.execute(mixed))
    assert sum(map(bool, queue.execute([ack(id, 1) for id in ids]))) == 2200


def test_large_payloads_are_split_into_several_calls(lab: Lab) -> None:
    queue = lab.queue()
    payload = "x" * 1_000_000

    assert all(queue.execute([enqueue(f"j{i}", payload) for i in range(12)]))

    jobs = queue.execute([reserve() for _ in range(12)])
    assert [outcome.job.payload == payload for outcome in jobs] == [True] * 12


def test_a_bad_operation_is_found_before_anything_is_sent(lab: Lab) -> None:
    queue = lab.queue()
    before = lab.dump(queue)

    with pytest.raises(TypeError, match="execute takes operations, not str"):
        queue.execute([enqueue("a"), "reserve"])
    with pytest.raises(TypeError, match="text payload"):
        queue.execute([enqueue("a"), enqueue("b", 1)])
    with pytest.raises(InvalidName):
        queue.execute([enqueue("a"), enqueue("")])

    assert lab.dump(queue) == before


OPS = st.one_of(
    st.builds(
        lambda id, payload: ("enqueue", id, payload), st.sampled_from("abcd"), st.sampled_from("PQ")
    ),
    st.just(("reserve",)),
    st.builds(
        lambda verb, id, attempt: (verb, id, attempt),
        st.sampled_from(["ack", "retry"]),
        st.sampled_from("abcd"),
        st.integers(0, 3),
    ),
    st.builds(lambda id: ("cancel", id), st.sampled_from("abcd")),
)


@settings(max_examples=300)
@given(ops=st.lists(OPS, max_size=40), capacity=st.sampled_from([None, 0, 1, 2, 3]), data=st.data())
@pytest.mark.parametrize("kind", ["embedded", "fake"])
def test_a_list_of_any_operations_answers_as_the_model(
    request: pytest.FixtureRequest, kind: str, ops: Any, capacity: int | None, data: Any
) -> None:
    backend: Backend = request.getfixturevalue(kind)
    model = Model(capacity)
    with backend.client() as raw, Queue(capacity=capacity, redis=raw) as queue:
        expected = []
        for name, *args in ops:
            reason = model.reason(name, *args)
            expected.append((reason, getattr(model, name)(*args)))
        made = [getattr(operations, name)(*args) for name, *args in ops]
        cut = data.draw(st.integers(0, len(made)))
        outcomes = queue.execute(made[:cut]) + queue.execute(made[cut:])

        for (name, *_), outcome, (reason, answer) in zip(ops, outcomes, expected, strict=True):
            assert outcome.reason == reason
            if name == "reserve":
                job = outcome.job
                assert (job and [job.id, job.payload, job.attempt]) == answer
            else:
                assert bool(outcome) is answer
        assert observed(dump(raw, queue._definition.keys)) == model
        queue.destroy()


def test_many_threads_at_once_share_a_queue(real: Backend) -> None:
    with Queue(redis=real.url) as queue, ThreadPoolExecutor(8) as threads:
        ids = [f"j{i}" for i in range(400)]
        assert sum(threads.map(queue.enqueue, ids * 2, ids * 2)) == 400
        held = [job for job in threads.map(lambda _: queue.reserve(), range(450)) if job]
        assert sorted(job.id for job in held) == sorted(ids)
        assert all(job.payload == job.id for job in held)
        assert sum(threads.map(lambda job: queue.ack(job.id, 1), held * 2)) == 400
        queue.destroy()


async def _storm(url: str) -> None:
    async with AsyncQueue(redis=url) as queue:
        ids = [f"j{i}" for i in range(200)]
        answers = await asyncio.gather(*(queue.enqueue(id, id) for id in ids * 2))
        assert sum(answers) == 200
        jobs = await asyncio.gather(*(queue.reserve() for _ in range(250)))
        held = [job for job in jobs if job]
        assert sorted(job.id for job in held) == sorted(ids)
        assert all(job.payload == job.id for job in held)
        done = await asyncio.gather(*(queue.ack(job.id, job.attempt) for job in held * 2))
        assert sum(done) == 200
        await queue.destroy()


def test_many_tasks_at_once_share_an_async_queue(real: Backend) -> None:
    asyncio.run(_storm(real.url))


def test_an_async_queue_is_used_by_one_loop_after_another(embedded: Backend) -> None:
    queue = AsyncQueue(redis=embedded.url)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, of loops left with sockets
        assert asyncio.run(queue.enqueue("a")) is True
        assert asyncio.run(queue.enqueue("b")) is True
        asyncio.run(queue.destroy())
        asyncio.run(queue.close())
        gc.collect()
