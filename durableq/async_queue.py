"""AsyncQueue: a thin method for each operation, awaited. queue.py is the same for plain code."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, overload

from redis.asyncio import Redis

from durableq import operations
from durableq.async_client import AsyncClient
from durableq.codecs import Codec
from durableq.definition import PREFIX, Definition, Registry
from durableq.delivery import Delivery
from durableq.errors import DurableQueueError, QueueNotFound
from durableq.models import UNSET, Job, Outcome, Reason, Settings, Unset
from durableq.operations import Operation, Plan

T = TypeVar("T")


class AsyncQueue(Generic[T]):
    """A durable queue of jobs on a Redis or Valkey server.

    `name` is the queue's name; processes that give the same name share the queue. Without one a
    fresh queue with a unique name is made. `capacity` bounds the active jobs (waiting, delayed and
    in flight); None is unbounded, 0 refuses every job. `codec` turns payloads into bytes and back
    (`TEXT` for a new queue). `redis` is a redis-py client, whose settings are copied, a URL, or
    another queue's `client`; without it the environment's DURABLEQ_URL counts, else the embedded
    server. `prefix` starts the names of all keys.

    Capacity and codec are stored with the queue: leave them out to adopt what is stored.

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
        redis: "Redis | AsyncClient | str | None" = None,
        codec: Codec[T],
        prefix: str = PREFIX,
    ) -> None: ...
    def __init__(
        self,
        name: str | None = None,
        *,
        capacity: int | None | Literal[Unset.UNSET] = UNSET,
        redis: "Redis | AsyncClient | str | None" = None,
        codec: Codec[T] | None = None,
        prefix: str = PREFIX,
    ) -> None:
        self._definition = Definition.of(name, prefix, capacity, codec)
        self._codec: Codec[Any] | None = None
        self._shared = isinstance(redis, AsyncClient)
        self.name = self._definition.name
        self.client = redis if isinstance(redis, AsyncClient) else AsyncClient(redis)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"a {kind} cannot be sent to another process: make one there, {kind}({self.name!r})"
        )

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def enqueue(
        self, id: str, payload: T | Literal[""] = "", *, request: str | None = None
    ) -> bool:
        """Accept a new job at the tail of waiting.

        False, and nothing changed, if the id is that of an active job or retired (its job was
        acknowledged or cancelled), or if the queue is full. A refused id stays free.

        `request` is the token of an `OutcomeUnknown`, to have that call's one effect and answer.

        Raises InvalidName for an id that breaks the rule for names, InvalidPayload for a payload
        that cannot be encoded or has more than 1 MiB, TypeError for one of the wrong type.
        """
        return bool((await self._run([operations.enqueue(id, payload)], request))[0])

    async def reserve(self, *, request: str | None = None) -> Job[T] | None:
        """Hand out the oldest waiting job, which is then in flight; None if nothing waits.

        Its attempt is 1 at the first reservation and one more at each later one. A call that is
        interrupted or cancelled may have reserved a job all the same: a `request` of your own,
        repeated, gets it.

        Raises DecodeError if the payload cannot be decoded: the job is in flight all the same.
        """
        outcome = (await self._run([operations.reserve()], request))[0]
        while outcome.reason is Reason.CANCELLED and request is None:
            # Its reply was lost, and the job was cancelled before it was asked for again.
            outcome = (await self._run([operations.reserve()], None))[0]
        if outcome.error is not None:
            raise outcome.error
        return outcome.job

    async def ack(
        self, id: str, attempt: int, *, token: str | None = None, request: str | None = None
    ) -> bool:
        """Finish a job: it is gone, its room is free, and its id is retired.

        False, and nothing changed, unless the job is in flight with exactly this attempt (and,
        if given, this claim token: `Job.token`).

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
        """Give a job back to the waiting tail; it keeps its room in the queue.

        `error` is kept as the job's last error, up to 4 KiB of it.

        False, and nothing changed, unless the job is in flight with exactly this attempt (and,
        if given, this claim token: `Job.token`).

        Raises TypeError for an id or attempt of the wrong type.
        """
        operation = operations.retry(id, attempt, error=error, token=token)
        return bool((await self._run([operation], request))[0])

    async def cancel(self, id: str, *, request: str | None = None) -> bool:
        """Remove a waiting or in-flight job at once; its id is retired, its reservation void.

        The order of the others is kept. False, and nothing changed, if the id is not active.

        Raises TypeError for an id of the wrong type.
        """
        return bool((await self._run([operations.cancel(id)], request))[0])

    @overload
    async def execute(self, operation: Operation, *, request: str | None = None) -> Outcome[T]: ...
    @overload
    async def execute(
        self, operation: Iterable[Operation], *, request: str | None = None
    ) -> list[Outcome[T]]: ...
    async def execute(
        self, operation: Operation | Iterable[Operation], *, request: str | None = None
    ) -> Outcome[T] | list[Outcome[T]]:
        """Run one operation, or many as if one after another; return the Outcome of each.

        Operations are made by `durableq.operations`. Many are sent in few round trips. They are
        not one transaction: other clients' operations may come in between, and if an error is
        raised, its `outcomes` are those of the operations that ran before. To go on then, execute
        the rest, not the whole, with `request=error.request` if it is an OutcomeUnknown.
        """
        if isinstance(operation, Operation):
            return (await self._run([operation], request))[0]
        return await self._run(list(operation), request)

    async def configure(self, *, capacity: int | None, request: str | None = None) -> None:
        """Change the stored settings; other clients obey with their next operation.

        A capacity below the number of active jobs only refuses new ones. `request` is the token of
        an `OutcomeUnknown`.
        """
        await self._open()
        await self.client.run(self.name, [self._definition.configuring(capacity)], request)

    async def settings(self) -> Settings:
        """Return the stored settings."""
        await self._open()
        return self._definition.stored(
            (await self.client.run(self.name, self._definition.looking()))[0]
        )

    async def destroy(self) -> None:
        """End the queue's lifetime: its jobs, retired ids and settings are gone.

        Later operations, of other clients, too, raise QueueNotFound until a new `Queue` is made.
        """
        await self.client.run(self.name, self._definition.destroying())

    async def queues(self) -> list[str]:
        """Return the sorted names of the queues on this server with this prefix."""
        registry = Registry(self._definition.prefix)
        names = registry.names((await self.client.run(self.name, registry.listing()))[0])
        return registry.existing(names, await self.client.run(self.name, registry.checking(names)))

    async def close(self) -> None:
        """Close this queue's connections; the jobs stay. Safe to call twice."""
        if not self._shared:
            await self.client.close()

    async def _open(self) -> Codec[Any]:
        if self._codec is None:
            try:
                # Found first: a server that is full or read-only lets nothing be written.
                replies = await self.client.run(self.name, self._definition.looking())
            except QueueNotFound:
                replies = await self.client.run(self.name, self._definition.creating())
            self._codec = self._definition.opened(replies[-1])
        return self._codec

    async def _run(self, batch: list[Operation], request: str | None) -> list[Outcome[Any]]:
        codec = await self._open()
        plan = Plan(batch, self._definition.keys, codec)
        delivery = Delivery(self.name, plan.calls, self.client.lanes, request)
        try:
            await self.client.deliver(delivery)
        except DurableQueueError as error:
            error.outcomes = tuple(plan.outcomes(delivery))
            raise
        return plan.outcomes(delivery)
