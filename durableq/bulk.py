"""Bulk: operations on many jobs at once, in chunks, and a worker's turn.

A chunk is up to 250 items, or 4 MiB of them; each is one atomic script and does what its items
would do one after another. What the items may be is told in batches.py. async_bulk.py is the same,
awaited.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import TypeVar

from durableq import arguments, batches, operations
from durableq.batches import TOGETHER, Enqueued, Held, Progress, checked, done, read_jobs
from durableq.delivery import Delivery
from durableq.errors import DurableQueueError
from durableq.models import IDLE, Exchange, Job, Outcome
from durableq.operations import Operation, Plan
from durableq.upkeep import Upkeep

T = TypeVar("T")


class Bulk(Upkeep[T]):
    """Operations on many jobs at once; `Queue` is what users make.

    Each takes items of any number and answers with a list in their order. A list or tuple is
    checked whole before anything is sent, of another iterable each few chunks are before they are:
    an error that names an item comes before those are sent. A `DurableQueueError` has in `outcomes`
    what was answered before it; to go on after an `OutcomeUnknown`, call with the rest and
    `request=error.request`. Any other exception, an interrupt included, gets a note of how many
    items were answered. Chunks are done whole or not at all.
    """

    def enqueue_many(
        self,
        jobs: Iterable[Enqueued[T]],
        *,
        priority: int = 0,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        max_attempts: int | None = None,
        progress: Progress | None = None,
        request: str | None = None,
    ) -> list[bool]:
        """Accept new jobs, given as (id, payload) or `operations.enqueue(...)`; see `enqueue`.

        Returns for each whether it was accepted. `priority`, `delay`, `at` and `max_attempts` are
        for those given as (id, payload).

        Raises what `enqueue` does, with a note that says which item is the wrong one.
        """
        codec = self._open()
        every = batches.enqueues(
            jobs, codec, priority=priority, delay=delay, at=at, max_attempts=max_attempts
        )
        return done(self._stream(checked(jobs, every), progress, request))

    def reserve_many(
        self,
        count: int,
        *,
        wait: float | timedelta = 0,
        lease: float | timedelta | None = None,
        worker: str | None = None,
        max_attempts: int | None = None,
        request: str | None = None,
    ) -> list[Job[T]]:
        """Hand out the first waiting jobs, at most `count`; see `reserve`.

        It goes in steps of up to 100 jobs, or 4 MiB and a little more of payloads. `wait` is for
        how many seconds to wait for the first one. An interrupted call releases what it has
        reserved, unless it came with a `request` of your own: that of the first step.

        Raises DecodeError if a payload cannot be decoded: that job, and all that are in the error's
        `outcomes`, are in flight; else what `reserve` does.
        """
        like = operations.reserve(lease=lease, worker=worker, max_attempts=max_attempts)
        left = arguments.whole(count, "a number of jobs", 0, 2**53)
        outcomes: list[Outcome[T]] = []
        words = self._definition.bell()
        try:
            while left > 0:
                step = batches.reserves(like, left)
                got = self._waited(step, request, 0 if outcomes else wait, IDLE, words)
                outcomes += [outcome for outcome in got if outcome.attempt is not None]
                left, request = count - len(outcomes), None
                if not got[0] or (got[-1].attempt is None and not got[-1].more):
                    break
        except DurableQueueError as error:
            error.outcomes = (*outcomes, *error.outcomes)
            raise
        except BaseException:
            self._give_back(Plan.releases(outcomes))
            raise
        return read_jobs(outcomes)

    def ack_many(
        self,
        jobs: Iterable[Held[T]],
        *,
        progress: Progress | None = None,
        request: str | None = None,
    ) -> list[bool]:
        """Finish jobs, each as `ack` does; return for each whether it was held."""
        every = batches.settled(operations.ack("like", 1), jobs)
        return done(self._stream(checked(jobs, every), progress, request))

    def retry_many(
        self,
        jobs: Iterable[Held[T]],
        *,
        delay: float | timedelta | None = None,
        error: str | None = None,
        progress: Progress | None = None,
        request: str | None = None,
    ) -> list[bool]:
        """Give jobs back to the waiting tail, each as `retry` does, in this order."""
        every = batches.settled(operations.retry("like", 1, delay=delay, error=error), jobs)
        return done(self._stream(checked(jobs, every), progress, request))

    def extend_many(
        self,
        jobs: Iterable[Held[T]],
        lease: float | timedelta | None = None,
        *,
        progress: Progress | None = None,
        request: str | None = None,
    ) -> list[bool]:
        """Let leases end later, each as `extend` does."""
        every = batches.settled(operations.extend("like", 1, lease), jobs)
        return done(self._stream(checked(jobs, every), progress, request))

    def cancel_many(
        self,
        ids: Iterable[str],
        *,
        progress: Progress | None = None,
        request: str | None = None,
    ) -> list[bool]:
        """Remove active jobs at once, each as `cancel` does."""
        return done(self._stream(checked(ids, batches.cancels(ids)), progress, request))

    def exchange(
        self,
        settled: Iterable[Job[T] | Operation],
        want: int,
        *,
        lease: float | timedelta | None = None,
        worker: str | None = None,
        max_attempts: int | None = None,
        request: str | None = None,
    ) -> Exchange[T]:
        """Settle what is done, and reserve up to `want` jobs (100, 4 MiB): a worker's turn.

        `settled` are Jobs to acknowledge, and operations (`operations.retry(...)` and the like) for
        what else has become of them. All of it is one round trip, unless there are many; the jobs
        are reserved as by `reserve_many` without a wait.

        Returns the outcomes of both: `reserved` tells also why there are no more, what has failed,
        and when the next lease or delay ends. Interrupted, it releases what it has reserved, unless
        it came with a `request` of your own.
        """
        like = operations.reserve(lease=lease, worker=worker, max_attempts=max_attempts)
        batch = list(batches.turn(settled))
        number = sum(operation.count for operation in batch)
        if arguments.whole(want, "want", 0, 2**53):
            batch.append(batches.reserves(like, want))
        outcomes = self._run(batch, request)
        return Exchange(outcomes[:number], outcomes[number:])

    def _stream(
        self, every: Iterable[Operation], progress: Progress | None, request: str | None
    ) -> list[Outcome[T]]:
        """Run batches, some at a time; tell `progress` how many items are answered."""
        outcomes: list[Outcome[T]] = []
        rest, ours = iter(every), request is None
        try:
            while batch := list(islice(rest, TOGETHER)):
                plan = Plan(batch, self._definition.keys, self._open())
                delivery = Delivery(self.name, plan.calls, self.client.lanes, request)
                outcomes += self._deliver(plan, delivery, ours)
                request = None if ours else delivery.next_token
                if progress is not None:
                    progress(len(outcomes))
        except BaseException as error:
            if isinstance(error, DurableQueueError):
                error.outcomes = (*outcomes, *error.outcomes)
            error.add_note(f"durableq: {len(outcomes)} items were answered before, and stay done")
            raise
        return outcomes
