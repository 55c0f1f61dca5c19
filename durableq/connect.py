"""Connect: from what the user gives (a client, a URL, or nothing) to how we connect ourselves.

The user's client is never used: its connection settings are copied, so that nothing but durableq
decides whether a request is sent again. The clients in client.py and async_client.py keep the
connections; the embedded server is in embedded.py.
"""

import logging
import os
import re
import threading
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from durableq import policy
from durableq.embedded import Embedded
from durableq.errors import InvalidArgument

# What a copied client must not bring along: resending, decoding, caching, and the upkeep of
# redis-py's own pools. Payloads are bytes here; the codec decides what they become.
_OURS = (
    "retry",
    "retry_on_error",
    "retry_on_timeout",
    "decode_responses",
    "encoding",
    "encoding_errors",
    "health_check_interval",
    "cache",
    "cache_config",
    "event_dispatcher",
    "himport_registry",
    "maint_notifications_config",
    "maint_notifications_pool_handler",
    "orig_host_address",
    "orig_socket_timeout",
    "orig_socket_connect_timeout",
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to make a connection: redis-py's class for it, and its arguments.

    `timeout` is how long, in seconds, to wait for an answer; asyncio's connections leave that to us
    (Python 3.11's `wait_for`, which redis-py uses there, can lose a cancellation).
    `embedded` is the server, where it is ours to start and stop. `source` is what the arguments
    were copied from, kept alive since they may refer to it.
    """

    connection_class: Any
    arguments: dict[str, Any]
    timeout: float
    embedded: Embedded | None = None
    source: object = None

    def connection(self, given_up: threading.Event | None = None) -> Any:
        """Return a new connection of redis-py, not connected yet.

        Blocks while the embedded server starts, until `given_up` is set.
        """
        if self.embedded is None:
            return self.connection_class(**self.arguments)
        self.embedded.ready(given_up)
        _announce(self.embedded)
        # Named by the process that makes it, which may be a fork of the one that made the queue.
        return self.connection_class(**self.arguments, client_name=self.embedded.client_name)

    def hurried(self, limit: float) -> "Endpoint":
        """Return the same with a limit of so many seconds for each answer and connection."""
        limits = {"socket_timeout": limit, "socket_connect_timeout": limit}
        known = {name: value for name, value in limits.items() if self.arguments.get(name)}
        return replace(self, arguments=self.arguments | known, timeout=limit)

    def leave(self) -> None:
        """Take note that a client is closed; blocks while a server stops."""
        if self.embedded is not None:
            self.embedded.leave()


def endpoint(given: object, *, asynchronous: bool) -> Endpoint:
    """Return the endpoint for the `redis=` of a queue.

    A redis-py client of the right kind, a URL (redis://, rediss:// or unix://), or None: then the
    URL in the environment's DURABLEQ_URL, else the embedded server.
    """
    if given is None:
        given = os.environ.get("DURABLEQ_URL") or None
    if given is None:
        return _embedded(asynchronous)
    if isinstance(given, str):
        return _copied(_pool(given, asynchronous), asynchronous, None)
    wanted = redis.asyncio.Redis if asynchronous else redis.Redis
    if not isinstance(given, wanted):
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        raise TypeError(
            f"redis= takes a {wanted.__module__.removesuffix('.client')}.Redis client, a URL or "
            f"nothing, not a {kind}"
        )
    return _copied(given.connection_pool, asynchronous, given)


def _pool(url: str, asynchronous: bool) -> Any:
    kind: Any = redis.asyncio.ConnectionPool if asynchronous else redis.ConnectionPool
    try:
        parts = urlsplit(url)
        if parts.scheme != "unix" and not re.fullmatch(r"(/\d*)?", parts.path):
            raise ValueError("redis-py would take database 0")
        pool = kind.from_url(url)
        pool.connection_class(**pool.connection_kwargs)  # not connected: to try its options
    except (ValueError, TypeError):
        # Neither the URL nor the parser's complaint, which may both hold a password.
        scheme = re.match(r"([a-z][a-z0-9+.-]*)://", url)
        told = f" (its scheme is {scheme[1]!r})" if scheme else ""
        raise InvalidArgument(
            f"the server's URL cannot be used{told}: write redis://HOST:PORT/DB, rediss://... or "
            "unix://PATH, with special characters in a user or password as %XX"
        ) from None
    return pool


def _copied(pool: Any, asynchronous: bool, source: object) -> Endpoint:
    arguments = {k: v for k, v in pool.connection_kwargs.items() if k not in _OURS}
    for limit in ("socket_timeout", "socket_connect_timeout"):
        # Without a limit a frozen server would hold its callers forever.
        if arguments.get(limit) is None:
            arguments[limit] = policy.READ_TIMEOUT
    return _endpoint(pool.connection_class, arguments, asynchronous, source=source)


def _endpoint(kind: Any, arguments: dict[str, Any], asynchronous: bool, **more: Any) -> Endpoint:
    timeout = arguments["socket_timeout"]
    if asynchronous:
        arguments |= {"socket_timeout": None, "retry": AsyncRetry(NoBackoff(), 0)}
    else:
        arguments |= {"retry": Retry(NoBackoff(), 0)}
    return Endpoint(kind, arguments, timeout, **more)


def _embedded(asynchronous: bool) -> Endpoint:
    server = Embedded.of_environment()
    server.join()
    module: Any = redis.asyncio if asynchronous else redis
    arguments = {
        "path": str(server.socket),
        "socket_timeout": policy.READ_TIMEOUT,
        "socket_connect_timeout": policy.READ_TIMEOUT,
    }
    kind = module.UnixDomainSocketConnection
    return _endpoint(kind, arguments, asynchronous, embedded=server)


@cache
def _announce(server: Embedded) -> None:
    # A fleet that believes itself on one server must not be split in silence.
    logging.getLogger("durableq").warning(
        "no server was given: using the embedded server in %s (DURABLEQ_URL names another)",
        server.home.folder,
    )
