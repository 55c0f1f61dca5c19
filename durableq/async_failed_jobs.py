"""AsyncFailedJobs: failed_jobs.py for asyncio. What it says there holds here."""

from datetime import timedelta
from typing import TypeVar

from durableq import arguments, operations, replies
from durableq.async_handle import AsyncHandle
from durableq.models import FailedJob

T = TypeVar("T")
PAGE = 100
MOST = 2**53


class AsyncFailedJobs(AsyncHandle[T]):
    """The failed jobs of a queue; `AsyncQueue` is what users make."""

    async def failed(self, start: int = 0, count: int = PAGE) -> list[FailedJob[T]]:
        """Return the records of failed jobs, the newest first: `count` of them, from `start` on.

        They are read a hundred at a time; jobs that fail or are redriven meanwhile shift the rest.

        Raises TypeError or InvalidArgument unless both are ints from 0 on.
        """
        arguments.whole(start, "start", 0, MOST)
        arguments.whole(count, "count", 0, MOST)
        codec = await self._open()
        jobs: list[FailedJob[T]] = []
        while len(jobs) < count:
            page = self._definition.failed(start + len(jobs), min(PAGE, count - len(jobs)))
            more = replies.failed_jobs((await self.client.run(self.name, page))[0], codec)
            if not more:
                break
            jobs += more
        return jobs

    async def redrive(
        self, id: str, *, max_attempts: int | None = None, request: str | None = None
    ) -> bool:
        """Put a failed job back to the waiting tail: its id is active again.

        Its payload, last error and attempt numbers go on; its budget of attempts is a fresh one, of
        `max_attempts` if given, else as it was enqueued. False, and nothing changed, if the job has
        not failed, its record was purged, or the queue is full.

        Raises TypeError or InvalidArgument for an argument that cannot be used.
        """
        operation = operations.redrive(id, max_attempts=max_attempts)
        return bool((await self._run([operation], request))[0])

    async def redrive_all(self, *, max_attempts: int | None = None) -> int:
        """Redrive the jobs that have failed so far, the oldest first, while there is room.

        Returns how many. It goes in steps of 250 jobs, each atomic: an interrupted call has done
        whole steps, and may be called again.

        Raises TypeError or InvalidArgument for a limit that cannot be used.
        """
        limit, until = arguments.limit(max_attempts), b""
        await self._open()
        done, more = 0, True
        while more:
            step = self._definition.redriving(limit, until)
            number, going_on, until = (await self.client.run(self.name, step))[0]
            done, more = done + int(number), going_on == b"1"
        return done

    async def purge_failed(self, *, older_than: float | timedelta = 0) -> int:
        """Drop the records of the jobs that failed more than `older_than` seconds ago.

        Returns how many. Their ids stay retired. It goes in steps of 250 records.

        Raises TypeError or InvalidArgument for an age that cannot be used.
        """
        age = arguments.milliseconds(older_than, "older_than", least=0)
        await self._open()
        done, more = 0, True
        while more:
            number, going_on = (await self.client.run(self.name, self._definition.purging(age)))[0]
            done, more = done + int(number), going_on == b"1"
        return done
