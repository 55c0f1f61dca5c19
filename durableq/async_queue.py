"""AsyncQueue: a thin method for each operation on jobs, awaited. queue.py is the same, plain."""

import asyncio
import math
import time
from datetime import timedelta
from typing import Literal, TypeVar, overload

from redis.asyncio import Redis

from durableq import operations, policy
from durableq.arguments import seconds
from durableq.async_client import AsyncClient
from durableq.async_failed_jobs import AsyncFailedJobs
from durableq.codecs import Codec
from durableq.definition import PREFIX
from durableq.models import ACTIVE, UNSET, Job, Keep, Outcome, Reason, Unset

T = TypeVar("T")


class AsyncQueue(AsyncFailedJobs[T]):
    """A durable queue of jobs on a Redis or Valkey server.

    `name` is the queue's name; processes that give the same name share the queue. Without one a
    fresh queue with a unique name is made. `redis` is a redis-py client, whose settings are copied,
    a URL, or another queue's `client`; without it the environment's DURABLEQ_URL counts, else the
    embedded server. `codec` turns payloads into bytes and back (`TEXT` for a new queue). `prefix`
    starts the names of all keys.

    `capacity` bounds the active jobs (waiting, delayed and in flight); None is unbounded, 0 refuses
    every job. `lease` is for how long a reservation lasts if it is not extended, in seconds or as
    a timedelta; with None it never ends by itself. `max_attempts` is how often a job may be
    reserved, the first time included, before it counts as failed; None is without a limit.
    `keep_failed` bounds the records of failed jobs: a number, or `Keep(count=..., age=...)`.

    Codec and settings are stored with the queue: leave them out to adopt what is stored.

    Raises InvalidArgument or TypeError for an argument that cannot be used. A `Queue` is made or
    found at once, an `AsyncQueue` by its first call, or by `async with`: then SettingsMismatch is
    raised if a given setting differs from the stored one. Every operation may raise
    ServerUnavailable or ServerRefused (it changed nothing), OutcomeUnknown (it may have run),
    QueueNotFound (the queue was destroyed) and QueueCorrupt.
    """

    @overload
    def __init__(
        self: "AsyncQueue[str]",
        name: str | None = None,
        *,
        capacity: int | None | Literal[Unset.UNSET] = UNSET,
        lease: float | timedelta | None | Literal[Unset.UNSET] = UNSET,
        max_attempts: int | None | Literal[Unset.UNSET] = UNSET,
        keep_failed: int | Keep | None | Literal[Unset.UNSET] = UNSET,
        redis: "Redis | AsyncClient | str | None" = None,
        codec: None = None,
        prefix: str = PREFIX,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str | None = None,
        *,
        capacity: int | None | Literal[Unset.UNSET] = UNSET,
        lease: float | timedelta | None | Literal[Unset.UNSET] = UNSET,
        max_attempts: int | None | Literal[Unset.UNSET] = UNSET,
        keep_failed: int | Keep | None | Literal[Unset.UNSET] = UNSET,
        redis: "Redis | AsyncClient | str | None" = None,
        codec: Codec[T],
        prefix: str = PREFIX,
    ) -> None: ...
    def __init__(
        self,
        name: str | None = None,
        *,
        capacity: int | None | Literal[Unset.UNSET] = UNSET,
        lease: float | timedelta | None | Literal[Unset.UNSET] = UNSET,
        max_attempts: int | None | Literal[Unset.UNSET] = UNSET,
        keep_failed: int | Keep | None | Literal[Unset.UNSET] = UNSET,
        redis: "Redis | AsyncClient | str | None" = None,
        codec: Codec[T] | None = None,
        prefix: str = PREFIX,
    ) -> None:
        super().__init__(
            name,
            redis,
            codec,
            prefix,
            capacity=capacity,
            lease=lease,
            max_attempts=max_attempts,
            keep_failed=keep_failed,
        )

    async def enqueue(
        self,
        id: str,
        payload: T | Literal[""] = "",
        *,
        max_attempts: int | None = None,
        wait: float | timedelta = 0,
        request: str | None = None,
    ) -> bool:
        """Accept a new job at the tail of waiting.

        False, and nothing changed, if the id is that of an active job or retired (its job was
        acknowledged or cancelled, or has failed), or if the queue is full. A refused id stays free.

        `max_attempts` is this job's own limit; without it the queue's counts, else that of whoever
        reserves it. `wait` is for how many seconds to wait for room in a full queue. Who waits
        gets the room that falls free in turn, ahead of those who do not. `request` is the token of
        an `OutcomeUnknown`, to have that call's one effect and answer.

        Raises InvalidName for an id that breaks the rule for names, InvalidPayload for a payload
        that cannot be encoded or has more than 1 MiB, InvalidArgument and TypeError for the rest.
        """
        operation = operations.enqueue(id, payload, max_attempts=max_attempts)
        return bool(
            await self._waited(operation, request, wait, Reason.FULL, self._definition.door())
        )

    async def reserve(
        self,
        *,
        wait: float | timedelta = 0,
        lease: float | timedelta | None = None,
        worker: str | None = None,
        max_attempts: int | None = None,
        request: str | None = None,
    ) -> Job[T] | None:
        """Hand out the oldest waiting job, which is then in flight; None if nothing waits.

        Its attempt is 1 at the first reservation and one more at each later one. `wait` is for how
        many seconds to wait for a job. `lease` is for how long the reservation lasts if it is not
        extended (None: the queue's); once it has ended, any reserve or reap may give the job to
        others. `worker` is a name to be kept with the job, `max_attempts` the limit for a job that
        has none of its own, in a queue that has none.

        An interrupted or cancelled call releases what it has reserved, unless it came with a
        `request` of your own (with `wait`, that of the first look), which, repeated, gets it.

        Raises DecodeError if the payload cannot be decoded: the job is in flight all the same;
        InvalidArgument, InvalidName or TypeError for an argument that cannot be used.
        """
        operation = operations.reserve(lease=lease, worker=worker, max_attempts=max_attempts)
        words = self._definition.bell()
        outcome = await self._waited(operation, request, wait, Reason.EMPTY, words)
        if outcome.error is not None:
            raise outcome.error
        return outcome.job

    async def ack(
        self, id: str, attempt: int, *, token: str | None = None, request: str | None = None
    ) -> bool:
        """Finish a job: it is gone, its room is free, and its id is retired.

        False, and nothing changed, unless the job is in flight with exactly this attempt (and,
        if given, this claim token: `Job.token`). After its lease has ended it is still in flight
        until a reserve or reap recovers it: an ack that comes before that counts.

        Raises TypeError for an id or attempt of the wrong type.
        """
        return bool((await self._run([operations.ack(id, attempt, token=token)], request))[0])

    async def retry(
        self,
        id: str,
        attempt: int,
        *,
        error: str | None = None,
        token: str | None = None,
        request: str | None = None,
    ) -> bool:
        """Give a job back to the waiting tail; it keeps its room. At its limit it has failed.

        `error` is kept as the job's last error, up to 4 KiB of it. `execute` tells whether the job
        has failed: by `Outcome.failed`.

        False, and nothing changed, unless the job is in flight with exactly this attempt (and,
        if given, this claim token: `Job.token`).

        Raises TypeError for an id or attempt of the wrong type.
        """
        operation = operations.retry(id, attempt, error=error, token=token)
        return bool((await self._run([operation], request))[0])

    async def fail(
        self,
        id: str,
        attempt: int,
        *,
        error: str | None = None,
        token: str | None = None,
        request: str | None = None,
    ) -> bool:
        """Give a job up for good, whatever its limit: it has failed, and its room is free.

        `error` is kept as its last error, up to 4 KiB of it. `failed` lists it, `redrive` puts it
        back to waiting. False, and nothing changed, under the same conditions as `retry`.

        Raises TypeError for an id or attempt of the wrong type.
        """
        operation = operations.fail(id, attempt, error=error, token=token)
        return bool((await self._run([operation], request))[0])

    async def release(
        self, id: str, attempt: int, *, token: str | None = None, request: str | None = None
    ) -> bool:
        """Hand a job back unstarted: to the head of waiting, in the order in which it waited.

        Its attempt number is used up, but does not count against its limit. False, and nothing
        changed, under the same conditions as `retry`.

        Raises TypeError for an id or attempt of the wrong type.
        """
        return bool((await self._run([operations.release(id, attempt, token=token)], request))[0])

    async def extend(
        self,
        id: str,
        attempt: int,
        lease: float | timedelta | None = None,
        *,
        token: str | None = None,
        request: str | None = None,
    ) -> bool:
        """Let a reservation last for `lease` seconds from now (None: as it was reserved for).

        That is the `lease` given to `reserve`, or to `extend` later; or else the queue's.

        False, and nothing changed, under the same conditions as `ack`: then the job is somebody
        else's, and the work on it should stop.

        Raises TypeError or InvalidArgument for an argument that cannot be used.
        """
        operation = operations.extend(id, attempt, lease, token=token)
        return bool((await self._run([operation], request))[0])

    async def cancel(self, id: str, *, request: str | None = None) -> bool:
        """Remove a waiting or in-flight job at once; its id is retired, its reservation void.

        The order of the others is kept. False, and nothing changed, if the id is not active.

        Raises TypeError for an id of the wrong type.
        """
        return bool((await self._run([operations.cancel(id)], request))[0])

    async def reap(self, *, request: str | None = None) -> Outcome[T]:
        """Recover jobs whose lease has ended: up to 250, those first that ended first.

        Each goes to the waiting tail, or has failed if this was its last allowed attempt. Every
        reserve does the same for up to 64, so that nobody has to call this. The Outcome is true if
        there were any; `returned` and `failed` name them, `more` says whether more are due at once,
        `due` is the seconds until the next lease ends.
        """
        return (await self._run([operations.reap()], request))[0]

    async def wait_for(self, id: str, timeout: float | timedelta | None = None) -> Reason:
        """Wait until a job is finished; return FINISHED, CANCELLED, FAILED or PURGED.

        After `timeout` seconds (None: never) it is where the job is then: WAITING, DELAYED or
        IN_FLIGHT. UNKNOWN, at once, for an id that no job has had. Looks once a second.

        Raises TypeError or InvalidArgument for an argument that cannot be used.
        """
        look = self._definition.states(id)
        end = time.monotonic() + (math.inf if timeout is None else seconds(timeout, "timeout"))
        await self._open()
        while True:
            state = Reason((await self.client.run(self.name, look))[0][1].decode())
            left = min(policy.POLL, end - time.monotonic())
            if state not in ACTIVE or left <= 0:
                return state
            await asyncio.sleep(left)

    async def join(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until no job is active; False if some still are after `timeout` seconds.

        None waits without an end. Failed jobs are not active. Looks once a second.

        Raises TypeError or InvalidArgument for a timeout that cannot be used.
        """
        look = self._definition.states()
        end = time.monotonic() + (math.inf if timeout is None else seconds(timeout, "timeout"))
        await self._open()
        while True:
            active = (await self.client.run(self.name, look))[0][0]
            left = min(policy.POLL, end - time.monotonic())
            if not active or left <= 0:
                return not active
            await asyncio.sleep(left)
