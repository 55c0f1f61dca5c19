"""AsyncQueue: queue.py, awaited."""

from datetime import datetime, timedelta
from typing import Literal, TypeVar, overload

from redis.asyncio import Redis

from durableq import operations
from durableq.async_bulk import AsyncBulk
from durableq.async_client import AsyncClient
from durableq.codecs import Codec
from durableq.definition import PREFIX
from durableq.models import IDLE, UNSET, Job, Keep, Reason, Unset

T = TypeVar("T")
_FULL = (Reason.FULL,)


class AsyncQueue(AsyncBulk[T]):
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
    `history` is how many of the last transitions of jobs are kept; with None there are none.

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
        history: int | None | Literal[Unset.UNSET] = UNSET,
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
        history: int | None | Literal[Unset.UNSET] = UNSET,
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
        history: int | None | Literal[Unset.UNSET] = UNSET,
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
            history=history,
        )

    async def enqueue(
        self,
        id: str,
        payload: T | Literal[""] = "",
        *,
        priority: int = 0,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        max_attempts: int | None = None,
        wait: float | timedelta = 0,
        request: str | None = None,
    ) -> bool:
        """Accept a new job: to the tail of waiting, or to wait from a later moment on.

        False, and nothing changed, if the id is that of an active job or retired (its job was
        acknowledged or cancelled, or has failed), or if the queue is full. A refused id stays free.

        `priority` is -1000 to 1000: whatever waits with a higher one is reserved first. `delay` is
        for how many seconds from now, by the server's clock, the job does not wait yet; `at` is the
        moment until then, an aware datetime. No delay, or a moment that has passed, is now. When
        it is due, the job joins the tail of its priority.

        `max_attempts` is this job's own limit; without it the queue's counts, else that of whoever
        reserves it. `wait` is for how many seconds to wait for room in a full queue (up to 0.1 s
        more). Who waits gets the room that falls free in turn, ahead of those who do not. `request`
        is the token of an `OutcomeUnknown`, to have that call's one effect and answer. One of your
        own is, with `wait`, that of the first look: if the job got in later, a repeat is refused.

        Raises InvalidName for an id that breaks the rule for names, InvalidPayload for a payload
        that cannot be encoded or has more than 1 MiB, InvalidArgument and TypeError for the rest.
        """
        operation = operations.enqueue(
            id, payload, priority=priority, delay=delay, at=at, max_attempts=max_attempts
        )
        words = self._definition.door()
        return bool((await self._waited(operation, request, wait, _FULL, words))[0])

    async def reserve(
        self,
        *,
        wait: float | timedelta = 0,
        lease: float | timedelta | None = None,
        worker: str | None = None,
        max_attempts: int | None = None,
        request: str | None = None,
    ) -> Job[T] | None:
        """Hand out the first waiting job, which is then in flight; None if nothing waits.

        The first is that of the highest priority, and of those the one that joined them first.

        Its attempt is 1 at the first reservation and one more at each later one. `wait` is for how
        many seconds to wait for a job (up to 0.1 s more). `lease` is for how long the reservation
        lasts if it is not extended (None: the queue's); once it has ended, any reserve or reap may
        give the job to others. `worker` is a name to be kept with the job, `max_attempts` the limit
        for a job that has none of its own, in a queue that has none.

        An interrupted or cancelled call releases what it has reserved, unless it came with a
        `request` of your own, which, repeated, gets it. That is the request of one look: those that
        follow it, with `wait`, have others. Without, None can mean, too, that all the look has met
        were jobs that fail at their limit (64 a look).

        Raises DecodeError if the payload cannot be decoded: the job is in flight all the same;
        InvalidArgument, InvalidName or TypeError for an argument that cannot be used.
        """
        operation = operations.reserve(lease=lease, worker=worker, max_attempts=max_attempts)
        words = self._definition.bell()
        outcome = (await self._waited(operation, request, wait, IDLE, words))[0]
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
        delay: float | timedelta | None = None,
        error: str | None = None,
        token: str | None = None,
        request: str | None = None,
    ) -> bool:
        """Give a job back to the waiting tail; it keeps its room. At its limit it has failed.

        `delay` is for how many seconds it does not wait yet; its priority stays as it is.
        `error` is kept as the job's last error, up to 4 KiB of it. `execute` tells whether the job
        has failed: by `Outcome.failed`.

        False, and nothing changed, unless the job is in flight with exactly this attempt (and,
        if given, this claim token: `Job.token`).

        Raises TypeError or InvalidArgument for an argument that cannot be used.
        """
        operation = operations.retry(id, attempt, delay=delay, error=error, token=token)
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
