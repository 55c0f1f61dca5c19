"""Client: our own connections to a server, and the sending of deliveries over them.

What to send, and whether to send it again, is decided in delivery.py. async_client.py is the same
for asyncio.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    RedisError,
    ResponseError,
)

from durableq.connect import Endpoint, endpoint
from durableq.delivery import Call, Delivery, Lanes
from durableq.errors import DurableQueueError, QueueClosed, left_behind


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
                connection = self._connection()
                self._reached = True
                sent = True
                replies = _exchange(connection, delivery.commands())
            except (RedisError, OSError, DurableQueueError) as error:
                self._drop_idle()  # they lead to the same server, and are likely as dead
                pause = delivery.trouble(error, sent=sent, patient=self._reached)
            else:
                self._release(connection, replies)
                pause = delivery.received(replies)
            if pause:
                time.sleep(pause)

    def _connection(self) -> Any:
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

    def _release(self, connection: Any, replies: list[Any]) -> None:
        if self._closed or left_behind(replies):
            connection.disconnect()
        else:
            self._idle.append(connection)

    def _drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().disconnect()

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._drop_idle()
        self._endpoint.leave()


def _exchange(connection: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send `commands` and return the replies to all of them, error replies as values."""
    try:
        if len(commands) == 1:
            connection.send_command(*commands[0], check_health=False)
        else:
            packed = connection.pack_commands(commands)
            connection.send_packed_command(packed, check_health=False)
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
