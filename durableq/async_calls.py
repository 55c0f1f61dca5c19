"""AsyncCalls: calls.py for asyncio. What it says there holds here."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, overload

from durableq import policy
from durableq.arguments import seconds
from durableq.async_client import AsyncClient
from durableq.async_handle import AsyncHandle
from durableq.delivery import Delivery
from durableq.errors import DurableQueueError
from durableq.models import Outcome, Reason
from durableq.operations import Operation, Plan

T = TypeVar("T")
STRANDED = "queue %r: an interrupted reserve may have left a job in flight (%s)"
_RELEASING: set[asyncio.Task[None]] = set()
"""Tasks under way, which asyncio itself would forget."""


class AsyncCalls(AsyncHandle[T]):
    """The running of a queue's operations; `AsyncQueue` is what users make."""

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

    async def _run(self, batch: list[Operation], request: str | None) -> list[Outcome[Any]]:
        plan = Plan(batch, self._definition.keys, await self._open())
        delivery = Delivery(self.name, plan.calls, self.client.lanes, request)
        return await self._deliver(plan, delivery, request is None)

    async def _deliver(self, plan: Plan, delivery: Delivery, ours: bool) -> list[Outcome[Any]]:
        """Run a plan; what it reserves is given back where it is interrupted, if that is `ours`."""
        try:
            await self.client.deliver(delivery)
            return plan.outcomes(delivery)
        except DurableQueueError as error:
            error.outcomes = tuple(plan.outcomes(delivery))
            raise
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException:
            if ours and plan.reserves:
                await self._give_back([], (plan, delivery))
            raise

    async def _look(
        self, operation: Operation, request: str | None, found: list[Outcome[Any]]
    ) -> None:
        """Run an operation, and again if the answer asks for it; put the outcomes into `found`."""
        found[:] = await self._run([operation], request)
        while request is None and operation.kind == "reserve" and Plan.asks_again(found):
            found[:] = await self._run([operation], None)

    async def _waited(
        self,
        operation: Operation,
        request: str | None,
        wait: float | timedelta,
        obstacles: tuple[Reason, ...],
        words: tuple[bytes, ...],
    ) -> list[Outcome[Any]]:
        """Run an operation, and again while one of `obstacles` is in its way and time is left.

        Between two looks it sleeps on the server, by the blocking command `words`.
        """
        deadline = time.monotonic() + seconds(wait, "wait")
        outcomes: list[Outcome[Any]] = []
        ours = request is None
        try:
            await self._look(operation, request, outcomes)
            if wait and outcomes[0].reason in obstacles:
                ours = True
                await self._sleep(operation, deadline, obstacles, words, outcomes)
            return outcomes  # noqa: TRY300 - here, too, an interrupt is to give back
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException:
            if ours:
                await self._give_back(Plan.releases(outcomes))  # to whom it is lost
            raise

    async def _sleep(
        self,
        operation: Operation,
        deadline: float,
        obstacles: tuple[Reason, ...],
        words: tuple[bytes, ...],
        found: list[Outcome[Any]],
    ) -> None:
        """Sleep on the server until there is another answer for `found`, or time is over."""
        async with self.client.listener(self.name, *words) as listener:
            while found[0].reason in obstacles and (left := deadline - time.monotonic()) > 0:
                woken = await listener.wait(left, policy.next_look(found[0].due, left))
                await self._look(replace(operation, woken=woken), None, found)
        if listener.cut_off and operation.kind == "reserve":
            await self._ring()

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
        over, client = False, None
        try:
            client = self.client.hurried(policy.GIVE_BACK / 2)
            deadline = asyncio.get_running_loop().time() + policy.GIVE_BACK
            while not over:
                # All of it may be done twice.
                with contextlib.suppress(asyncio.CancelledError):
                    async with asyncio.timeout_at(deadline):
                        await self._release(client, releases, doubt)
                    over = True
        except (DurableQueueError, TimeoutError) as error:
            logging.getLogger("durableq").warning(STRANDED, self.name, str(error) or "no answer")
        except BaseException as error:
            told = "interrupted again: " + type(error).__name__
            logging.getLogger("durableq").warning(STRANDED, self.name, told)
            raise
        finally:
            if client is not None:
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
