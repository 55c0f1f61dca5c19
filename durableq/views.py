"""Views: what a queue tells to whoever looks at it; nothing here changes anything.

async_views.py is the same, awaited.
"""

import math
import time
from datetime import timedelta
from typing import TypeVar

from durableq import arguments, policy, replies
from durableq.arguments import seconds
from durableq.calls import Calls
from durableq.models import ACTIVE, Counts, JobView, Page, Position, Reason, Transition

T = TypeVar("T")
PAGE = 100
MOST = 2**53
HISTORY_PAGE = 250


class Views(Calls[T]):
    """The views of a queue; `Queue` is what users make."""

    def counts(self) -> Counts:
        """Return how many jobs are in each state, and for how long the oldest has waited."""
        self._open()
        return replies.counts(self.client.run(self.name, self._definition.counting())[0])

    def get(self, id: str, *, payload: bool = False) -> JobView[T] | None:
        """Return what is known of a job that is active or has failed, with its payload if asked.

        None if no job has this id: it was never enqueued, or is finished, cancelled or purged
        (`wait_for` with a timeout of 0 tells which).

        Raises TypeError for an id of the wrong type.
        """
        look = self._definition.getting(id, payload)
        codec = self._open()
        found = replies.views(self.client.run(self.name, look)[0], codec, payload=payload)
        return found[0] if found else None

    def peek(self, count: int = 1, *, payload: bool = False) -> list[JobView[T]]:
        """Return the jobs that reserve would hand out next, in their order, without reserving them.

        What is due, or whose lease has ended, waits only when a reserve or reap has found it. Jobs
        past their limit of attempts are among them still: reserve lets them fail.

        Raises TypeError or InvalidArgument unless the count is an int from 1 on.
        """
        return list(self.jobs(Reason.WAITING, count=count, payload=payload).jobs)

    def jobs(
        self,
        state: str,
        *,
        count: int = PAGE,
        after: str | None = None,
        payload: bool = False,
    ) -> Page[T]:
        """Return a page of the jobs that are "waiting", "delayed", "in_flight" or "failed".

        Waiting ones come in the order in which they will be reserved, delayed ones and those in
        flight by when their delay or lease ends, failed ones the newest first. `after` is the
        `next` of the page before: what joined, left or moved meanwhile shifts nothing else.

        Raises TypeError or InvalidArgument for an argument that cannot be used.
        """
        arguments.whole(count, "count", 1, MOST)
        name, mark = arguments.state(state), arguments.mark(after)
        codec = self._open()
        found: list[JobView[T]] = []
        while len(found) < count:
            look = self._definition.paging(name, mark, min(PAGE, count - len(found)), payload)
            mark, *texts = self.client.run(self.name, look)[0]
            found += replies.views(texts, codec, payload=payload)
            if not mark:
                break
        return Page(tuple(found), mark.decode() or None)

    def position(self, id: str) -> Position | None:
        """Return how many jobs will be reserved before this one; None if it does not wait.

        Raises TypeError for an id of the wrong type.
        """
        look = self._definition.finding(id)
        self._open()
        return replies.position(self.client.run(self.name, look)[0])

    def failed(self, start: int = 0, count: int = PAGE) -> list[JobView[T]]:
        """Return the failed jobs, the newest first: `count` of them, from `start` on.

        They are read a hundred at a time; jobs that fail or are redriven meanwhile shift the rest
        (they do not in `jobs`).

        Raises TypeError or InvalidArgument unless both are ints from 0 on.
        """
        arguments.whole(start, "start", 0, MOST)
        arguments.whole(count, "count", 0, MOST)
        codec = self._open()
        found: list[JobView[T]] = []
        while len(found) < count:
            look = self._definition.failed(start + len(found), min(PAGE, count - len(found)))
            more = replies.views(self.client.run(self.name, look)[0], codec, payload=True)
            if not more:
                break
            found += more
        return found

    def history(self, id: str | None = None) -> list[Transition]:
        """Return what happened to jobs of late, or to one of them, the oldest first.

        These are the last ones of a queue that keeps them: `Queue(history=...)`.

        Raises TypeError for an id of the wrong type.
        """
        wanted = None if id is None else arguments.known_id(id)
        self._open()
        found: list[Transition] = []
        left, mark = MOST, b""
        while left > 0:
            look = self._definition.remembering(mark, min(HISTORY_PAGE, left))
            kept, *texts = self.client.run(self.name, look)[0]
            left = min(left, int(kept or 0))
            more = replies.transitions(texts[: 5 * left])
            found += (each for each in more if wanted is None or each.id.encode() == wanted)
            left -= len(more)
            if len(texts) < 5 * HISTORY_PAGE:
                break
            mark = texts[-5]
        return found[::-1]

    def wait_for(self, id: str, timeout: float | timedelta | None = None) -> Reason:
        """Wait until a job is finished; return FINISHED, CANCELLED, FAILED or PURGED.

        After `timeout` seconds (None: never) it is where the job is then: WAITING, DELAYED or
        IN_FLIGHT. UNKNOWN, at once, for an id that no job has had. Looks once a second.

        Raises TypeError or InvalidArgument for an argument that cannot be used.
        """
        look = self._definition.states(id)
        end = time.monotonic() + (math.inf if timeout is None else seconds(timeout, "timeout"))
        self._open()
        while True:
            state = Reason(self.client.run(self.name, look)[0][1].decode())
            left = min(policy.POLL, end - time.monotonic())
            if state not in ACTIVE or left <= 0:
                return state
            time.sleep(left)

    def join(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until no job is active; False if some still are after `timeout` seconds.

        None waits without an end. Failed jobs are not active. Looks once a second.

        Raises TypeError or InvalidArgument for a timeout that cannot be used.
        """
        look = self._definition.states()
        end = time.monotonic() + (math.inf if timeout is None else seconds(timeout, "timeout"))
        self._open()
        while True:
            active = self.client.run(self.name, look)[0][0]
            left = min(policy.POLL, end - time.monotonic())
            if not active or left <= 0:
                return not active
            time.sleep(left)
