"""AsyncClient: client.py for asyncio. What it says there holds here."""

import asyncio
import contextlib
import copy
import os
import threading
from collections.abc import Sequence
from typing import Any, Self

import hiredis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    RedisError,
    ResponseError,
)

from durableq import policy
from durableq.connect import Endpoint, endpoint
from durableq.delivery import Call, Delivery
from durableq.errors import DurableQueueError, QueueClosed, code_of, left_behind, translated
from durableq.requests import Lanes

MAX_CONNECTIONS = 64
"""The most connections for calls at a time; further calls wait. Each listener has its own."""

_ABANDONED: list[Any] = []


class AsyncClient:
    """Connections to one server, for any number of tasks of one event loop at a time.

    `given` is what a queue takes as `redis=`. May be given to several queues as their `redis=`.
    """

    def __init__(self, given: object = None) -> None:
        self._endpoint: Endpoint = endpoint(given, asynchronous=True)
        self.lanes = Lanes()
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[Any] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._reached = self._endpoint.embedded is not None
        self._closed = False

    async def run(self, queue: str, calls: Sequence[Call], request: str | None = None) -> list[Any]:
        """Run `calls`, under the user's request token if there is one; return the replies."""
        delivery = Delivery(queue, calls, self.lanes, request)
        await self.deliver(delivery)
        return delivery.replies

    async def deliver(self, delivery: Delivery) -> None:
        """Run the calls of `delivery` until all are answered, or raise why not."""
        await self._enter_loop()
        while not delivery.done:
            sent = False
            async with self._room:
                try:
                    connection = await self.borrow()
                    self._reached = True
                    sent = True
                    replies = await _exchange(
                        connection, delivery.commands(), self._endpoint.timeout
                    )
                except (RedisError, OSError, DurableQueueError) as error:
                    await self.drop_idle()  # they lead to the same server, and are likely as dead
                    pause = delivery.trouble(error, sent=sent, patient=self._reached)
                else:
                    await self.put_back(connection, replies)
                    pause = delivery.received(replies)
            if pause:
                await asyncio.sleep(pause)

    async def _enter_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            # Forked: to close the parent's connections, even by forgetting them, would take them
            # out of the parent's selector, which the child shares.
            _ABANDONED.extend(self._idle)
            self._idle, self._pid = [], os.getpid()
        if loop is not self._loop:
            # Connections belong to the loop that made them: those of another one are dropped.
            idle, self._idle, self._loop = self._idle, [], loop
            self._room = asyncio.Semaphore(MAX_CONNECTIONS)
            for connection in idle:
                with contextlib.suppress(RuntimeError):  # that loop is closed
                    await connection.disconnect(nowait=True)
        return loop

    async def borrow(self) -> Any:
        """Return an idle connection, or a new one."""
        if self._closed:
            raise QueueClosed("this queue, or the client that it shares, was closed")
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        if self._endpoint.embedded is None:
            connection = self._endpoint.connection()
        else:
            given_up = threading.Event()
            try:
                connection = await asyncio.to_thread(self._endpoint.connection, given_up)
            finally:
                given_up.set()  # if cancelled: the thread would keep the process from ending
        try:
            async with asyncio.timeout(self._endpoint.timeout):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def put_back(self, connection: Any, replies: list[Any]) -> None:
        """Take back a borrowed connection, which gave these replies last."""
        here = asyncio.get_running_loop() is self._loop
        if self._closed or not here or left_behind(replies):
            await connection.disconnect(nowait=True)
        else:
            self._idle.append(connection)

    async def drop_idle(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    def hurried(self, limit: float) -> "AsyncClient":
        """Return a client for a few calls that may take `limit` seconds each; not to be closed.

        It can be used even if this one is closed.
        """
        other = copy.copy(self)
        vars(other).update(_endpoint=self._endpoint.hurried(limit), _idle=[], _closed=False)
        return other

    def listener(self, queue: str, *words: bytes) -> "Listener":
        """Return a listener for the rings that the blocking command `words` waits for."""
        return Listener(self, queue, words)

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        await self._enter_loop()
        await self.drop_idle()
        if self._endpoint.embedded is not None:
            await asyncio.to_thread(self._endpoint.leave)


class Listener:
    """Sleeps on the server, on a connection of its own, until a ring comes.

    A ring is a hint, and so is its absence: whoever listens looks for itself afterwards. It keeps
    its place among those who listen over several waits; servers are up to 0.1 s late to end one,
    so that is done here, and what was sent goes on. `cut_off` tells whether it did to the end, so
    that a ring may have come after that and is lost.
    """

    def __init__(self, client: AsyncClient, queue: str, words: tuple[bytes, ...]) -> None:
        self._client, self._queue, self._words = client, queue, words
        self._connection: Any = None
        self._reply: asyncio.Future[Any] | None = None  # to the command under way
        self._until = 0.0  # when it has to have ended
        self.cut_off = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is GeneratorExit:
            pass  # the loop is gone, and its connections with it
        elif self._connection is not None and self._reply is None:
            await self._client.put_back(self._connection, [])
        else:
            self.cut_off = self._reply is not None
            await self._forget()
            await asyncio.sleep(0)  # until then the socket is open

    async def wait(self, seconds: float, due: float) -> bool:
        """Wait for a ring for at most `due` of `seconds` seconds; tell whether there was one."""
        loop = asyncio.get_running_loop()
        try:
            if self._reply is None:
                if self._connection is None:
                    self._connection = await self._client.borrow()
                seconds = min(seconds, policy.LONGEST_LISTENING)
                self._until = loop.time() + seconds + policy.LATE
                words = (*self._words, b"%.3f" % max(seconds, 0.001))
                self._reply = asyncio.ensure_future(self._ask(words))
            patience = max(0.0, self._until - loop.time())
            exact = due < min(seconds, patience)
            await asyncio.wait({self._reply}, timeout=due if exact else patience)
            if not self._reply.done():
                if not exact:
                    await self._forget()
                return False
            reply = self._reply.result()
        except (RedisError, OSError) as error:
            await self._forget()
            if code_of(error) in ("NOPERM", "WRONGTYPE"):
                raise translated(error, self._queue) from error
            await asyncio.sleep(
                min(seconds, policy.LISTEN_AGAIN)
            )  # whoever looks next finds out, and decides
            return False
        self._reply = None
        return reply is not None

    async def _ask(self, words: tuple[bytes, ...]) -> Any:
        await self._connection.send_command(*words, check_health=False)
        return await self._connection.read_response(disable_decoding=True)

    async def _forget(self) -> None:
        connection, reply, self._connection, self._reply = self._connection, self._reply, None, None
        if reply is not None:
            reply.add_done_callback(lambda over: over.cancelled() or over.exception())
            reply.cancel()
        if connection is not None:
            await connection.disconnect(nowait=True)


async def _exchange(
    connection: Any, commands: Sequence[tuple[Any, ...]], limit: float
) -> list[Any]:
    """Send `commands` and return the replies to all of them, error replies as values.

    The sending, and each reply, may take `limit` seconds.
    """
    try:
        async with asyncio.timeout(limit):
            packed = b"".join(map(hiredis.pack_command, commands))
            await connection.send_packed_command([packed], check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                async with asyncio.timeout(limit):
                    replies.append(await connection.read_response(disable_decoding=True))
            except ResponseError as error:
                replies.append(error)
            except (BusyLoadingError, AuthenticationError) as error:
                # Replies, too, but redis-py has closed the connection for them.
                return [*replies, error]
    except BaseException:
        # Whatever it was, a reply may be left unread: nobody else may have this connection.
        await connection.disconnect(nowait=True)
        raise
    return replies
