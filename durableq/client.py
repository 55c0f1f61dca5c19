"""Client: our own connections to a server, and the sending of deliveries over them.

What to send, and whether to send it again, is decided in delivery.py. async_client.py is the same
for asyncio.
"""

import contextlib
import copy
import os
import time
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


class Client:
    """Connections to one server, for any number of threads, made as they are needed.

    `given` is what a queue takes as `redis=`. May be given to several queues as their `redis=`.
    """

    def __init__(self, given: object = None) -> None:
        self._endpoint: Endpoint = endpoint(given, asynchronous=False)
        self.lanes = Lanes()
        self._idle: list[Any] = []
        self._pid = os.getpid()
        self._reached = self._endpoint.embedded is not None
        self._closed = False

    def run(self, queue: str, calls: Sequence[Call], request: str | None = None) -> list[Any]:
        """Run `calls`, under the user's request token if there is one; return the replies."""
        delivery = Delivery(queue, calls, self.lanes, request)
        self.deliver(delivery)
        return delivery.replies

    def deliver(self, delivery: Delivery) -> None:
        """Run the calls of `delivery` until all are answered, or raise why not."""
        while not delivery.done:
            sent = False
            try:
                connection = self.borrow()
                self._reached = True
                sent = True
                replies = _exchange(connection, delivery.commands())
            except (RedisError, OSError, DurableQueueError) as error:
                self.drop_idle()  # they lead to the same server, and are likely as dead
                pause = delivery.trouble(error, sent=sent, patient=self._reached)
            else:
                self.put_back(connection, replies)
                pause = delivery.received(replies)
            if pause:
                time.sleep(pause)

    def borrow(self) -> Any:
        """Return an idle connection, or a new one."""
        if self._closed:
            raise QueueClosed("this queue, or the client that it shares, was closed")
        if self._pid != os.getpid():
            # Forked: the sockets are the parent's. Ours are closed without a word to the server.
            self._idle, self._pid = [], os.getpid()
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        connection = self._endpoint.connection()
        connection.connect()
        return connection

    def put_back(self, connection: Any, replies: list[Any]) -> None:
        """Take back a borrowed connection, which gave these replies last."""
        if self._closed or left_behind(replies):
            connection.disconnect()
        else:
            self._idle.append(connection)

    def drop_idle(self) -> None:
        """Close the idle connections."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().disconnect()

    def hurried(self, limit: float) -> "Client":
        """Return a client for a few calls that may take `limit` seconds each; not to be closed.

        It can be used even if this one is closed.
        """
        other = copy.copy(self)
        vars(other).update(_endpoint=self._endpoint.hurried(limit), _idle=[], _closed=False)
        return other

    def listener(self, queue: str, *words: bytes) -> "Listener":
        """Return a listener for the rings that the blocking command `words` waits for."""
        return Listener(self, queue, words)

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self.drop_idle()
        self._endpoint.leave()


class Listener:
    """Sleeps on the server, on a connection of its own, until a ring comes.

    A ring is a hint, and so is its absence: whoever listens looks for itself afterwards. It keeps
    its place among those who listen over several waits; servers are up to 0.1 s late to end one,
    so that is done here, and what was sent goes on. `cut_off` tells whether it did to the end, so
    that a ring may have come after that and is lost.
    """

    def __init__(self, client: Client, queue: str, words: tuple[bytes, ...]) -> None:
        self._client, self._queue, self._words = client, queue, words
        self._connection: Any = None
        self._until: float | None = None  # when the command under way has to have ended
        self.cut_off = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._connection is not None:
            if self._until is None:
                self._client.put_back(self._connection, [])
            else:
                self._connection.disconnect()
                self.cut_off = True

    def wait(self, seconds: float, due: float) -> bool:
        """Wait for a ring for at most `due` of `seconds` seconds; tell whether there was one."""
        try:
            if self._until is None:
                if self._connection is None:
                    self._connection = self._client.borrow()
                seconds = min(seconds, policy.LONGEST_LISTENING)
                if type(self._connection).__module__.startswith("fakeredis"):
                    seconds = min(seconds, due)  # it sleeps while it sends
                words = (*self._words, b"%.3f" % max(seconds, 0.001))
                self._until = time.monotonic() + seconds + policy.LATE
                self._connection.send_command(*words, check_health=False)
            patience = max(0.0, self._until - time.monotonic())
            exact = due < min(seconds, patience)
            if not self._connection.can_read(due if exact else patience):
                if not exact:
                    self._forget()
                return False
            reply = self._connection.read_response(disable_decoding=True)
        except (RedisError, OSError) as error:
            self._forget()
            if code_of(error) in ("NOPERM", "WRONGTYPE"):
                raise translated(error, self._queue) from error
            time.sleep(
                min(seconds, policy.LISTEN_AGAIN)
            )  # whoever looks next finds out, and decides
            return False
        self._until = None
        return reply is not None

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
        self._connection = self._until = None


def _exchange(connection: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send `commands` and return the replies to all of them, error replies as values."""
    try:
        packed = b"".join(map(hiredis.pack_command, commands))
        connection.send_packed_command([packed], check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(connection.read_response(disable_decoding=True))
            except ResponseError as error:
                replies.append(error)
            except (BusyLoadingError, AuthenticationError) as error:
                # Replies, too, but redis-py has closed the connection for them.
                return [*replies, error]
    except BaseException:
        # Whatever it was, a reply may be left unread: nobody else may have this connection.
        connection.disconnect()
        raise
    return replies
