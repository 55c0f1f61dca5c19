"""AsyncHandle: handle.py for asyncio. What it says there holds here."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, overload

from redis.asyncio import Redis

from durableq import policy
from durableq.arguments import seconds
from durableq.async_client import AsyncClient
from durableq.codecs import Codec
from durableq.definition import Definition, Registry
from durableq.delivery import Delivery
from durableq.errors import DurableQueueError, QueueNotFound
from durableq.models import UNSET, Keep, Outcome, Reason, Settings, Unset
from durableq.operations import Operation, Plan

T = TypeVar("T")
STRANDED = "queue %r: an interrupted reserve may have left a job in flight (%s)"
_RELEASING: set[asyncio.Task[None]] = set()
"""Tasks under way, which asyncio itself would forget."""


class AsyncHandle(Generic[T]):
    """A queue's name, settings and connections; `AsyncQueue` is what users make."""

    def __init__(
        self,
        name: str | None,
        redis: "Redis | AsyncClient | str | None",
        codec: Codec[T] | None,
        prefix: str,
        **settings: Any,
    ) -> None:
        self._definition = Definition.of(name, prefix, codec, **settings)
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

    async def configure(
        self,
        *,
        capacity: int | None | Literal[Unset.UNSET] = UNSET,
        lease: float | timedelta | None | Literal[Unset.UNSET] = UNSET,
        max_attempts: int | None | Literal[Unset.UNSET] = UNSET,
        keep_failed: int | Keep | None | Literal[Unset.UNSET] = UNSET,
        history: int | None | Literal[Unset.UNSET] = UNSET,
        request: str | None = None,
    ) -> None:
        """Change stored settings; other clients obey with their next operation.

        What is left out stays. A capacity below the number of active jobs only refuses new ones; a
        lease or limit is that of reservations from now on. `request` is the token of an
        `OutcomeUnknown`.

        Raises TypeError or InvalidArgument for a value that cannot be used, or if none is given.
        """
        change = self._definition.configuring(
            capacity=capacity,
            lease=lease,
            max_attempts=max_attempts,
            keep_failed=keep_failed,
            history=history,
        )
        await self._open()
        await self.client.run(self.name, [change], request)

    async def pause(self, *, request: str | None = None) -> bool:
        """Hand out no more jobs until `resume`; False if the queue was paused already.

        Everything else goes on: jobs are accepted and may be settled, leases and delays end.
        """
        return await self._pausing(True, request)

    async def resume(self, *, request: str | None = None) -> bool:
        """Hand out jobs again, and wake who waits for one; False if the queue was not paused."""
        return await self._pausing(False, request)

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

    async def _pausing(self, paused: bool, request: str | None) -> bool:
        await self._open()
        change = self._definition.pausing(paused)
        return bool((await self.client.run(self.name, change, request))[0] == [b"1"])

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
            return plan.outcomes(delivery)
        except DurableQueueError as error:
            error.outcomes = tuple(plan.outcomes(delivery))
            raise
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException:
            if request is None and plan.reserves:
                await self._give_back([], (plan, delivery))
            raise

    async def _settled(self, operation: Operation, request: str | None) -> Outcome[Any]:
        outcome = (await self._run([operation], request))[0]
        while request is None and operation.kind == "reserve":
            # Lost with its reply, and gone before it was asked for again? More to recover?
            again = outcome.reason is Reason.CANCELLED
            if not again and not (outcome.reason is Reason.EMPTY and outcome.more):
                break
            outcome = (await self._run([operation], None))[0]
        return outcome

    async def _waited(
        self,
        operation: Operation,
        request: str | None,
        wait: float | timedelta,
        obstacles: tuple[Reason, ...],
        words: tuple[bytes, ...],
    ) -> Outcome[Any]:
        """Run an operation, and again while one of `obstacles` is in its way and time is left.

        Between two looks it sleeps on the server, by the blocking command `words`.
        """
        deadline = time.monotonic() + seconds(wait, "wait")
        outcome = await self._settled(operation, request)
        if outcome.reason not in obstacles or not wait:
            return outcome
        try:
            async with self.client.listener(self.name, *words) as listener:
                while outcome.reason in obstacles and (left := deadline - time.monotonic()) > 0:
                    soon = policy.LONGEST_SLEEP if outcome.due is None else outcome.due
                    woken = await listener.wait(left, min(left, soon, policy.LONGEST_SLEEP))
                    outcome = await self._settled(replace(operation, woken=woken), None)
            if listener.cut_off and operation.kind == "reserve":
                await self._ring()
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException:
            await self._give_back(Plan.releases([outcome]))  # to whom it is lost
            raise
        return outcome

    async def _ring(self) -> None:
        """Wake somebody else, if there is work: our listener may have taken a ring along."""
        delivery = Delivery(self.name, self._definition.ringing(), self.client.lanes)
        delivery.hurry(policy.LATE)
        with contextlib.suppress(DurableQueueError):  # they look for themselves before long
            await self.client.deliver(delivery)

    async def _give_back(
        self, releases: list[Operation], doubt: tuple[Plan, Delivery] | None = None
    ) -> None:
        """Release jobs, and what a call in doubt has reserved: nobody will hear of them.

        Goes on in the background if it is cancelled itself, for a time that is bounded.
        """
        if not releases and doubt is None:
            return
        started = asyncio.Event()
        task: asyncio.Task[None] | None = None
        while not started.is_set():
            # One that is cancelled before its first step, as asyncio.run does to whatever there is
            # when it ends, does nothing: then another one is made.
            if task is None or task.done():
                task = asyncio.ensure_future(self._releasing(releases, doubt, started))
                _RELEASING.add(task)
                task.add_done_callback(_RELEASING.discard)
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if started.is_set():
                    raise

    async def _releasing(
        self,
        releases: list[Operation],
        doubt: tuple[Plan, Delivery] | None,
        started: asyncio.Event,
    ) -> None:
        started.set()
        client = self.client.hurried(policy.GIVE_BACK / 2)
        deadline = asyncio.get_running_loop().time() + policy.GIVE_BACK
        over = False
        try:
            while not over:
                # All of it may be done twice.
                with contextlib.suppress(asyncio.CancelledError):
                    async with asyncio.timeout_at(deadline):
                        await self._release(client, releases, doubt)
                    over = True
        except (DurableQueueError, TimeoutError) as error:
            logging.getLogger("durableq").warning(STRANDED, self.name, str(error) or "no answer")
        finally:
            await client.drop_idle()

    async def _release(
        self,
        client: AsyncClient,
        releases: list[Operation],
        doubt: tuple[Plan, Delivery] | None,
    ) -> None:
        if doubt is not None:
            plan, delivery = doubt
            delivery.hurry(policy.GIVE_BACK / 2)
            if delivery.resume():
                await client.deliver(delivery)
            releases = Plan.releases(plan.outcomes(delivery))
        calls = Plan(releases, self._definition.keys, await self._open()).calls
        delivery = Delivery(self.name, calls, client.lanes)
        delivery.hurry(policy.GIVE_BACK / 2)
        await client.deliver(delivery)
