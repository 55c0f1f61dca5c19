"""Errors: the tree of everything durableq raises, and the reading of a server's error replies.

A refused operation is not an error: it is False, and its `Outcome` says why. Errors here mean that
the answer could not be had, or that the arguments cannot be sent. Wrong types are TypeErrors.
"""

import re
from collections.abc import Sequence
from typing import Any

import redis.exceptions


class DurableQueueError(Exception):
    """The root of all errors of this package.

    `outcomes` holds those of the operations that ran before, where several were executed together.
    """

    outcomes: tuple[Any, ...] = ()


class InvalidArgument(DurableQueueError, ValueError):
    """An argument has a value that cannot be used; nothing was sent."""


class InvalidName(InvalidArgument):
    """A job id, queue name, prefix or request token breaks the rule for names."""


class InvalidPayload(InvalidArgument):
    """A payload cannot be encoded, or is too large."""


class DecodeError(DurableQueueError):
    """A reserved job's payload cannot be decoded. The job is in flight: settle it.

    `id`, `attempt` and `token` are those of the reservation, `data` is the stored bytes. That of a
    failed job (`JobView.undecodable`) is not `in_flight`.
    """

    def __init__(
        self, id: str, attempt: int, token: str, data: bytes, codec: str, in_flight: bool = True
    ) -> None:
        super().__init__(id, attempt, token, data, codec, in_flight)
        self.id, self.attempt, self.token = id, attempt, token
        self.data, self.codec, self.in_flight = data, codec, in_flight

    def __str__(self) -> str:
        remedy = ": the job is in flight, so fail it, or ack, retry or cancel it"
        return (
            f"the payload of job {self.id!r} (attempt {self.attempt}, {len(self.data)} bytes) "
            f"cannot be decoded by the codec {self.codec!r}{remedy if self.in_flight else ''}"
        )


class SettingsMismatch(DurableQueueError):
    """A setting given for a queue differs from the one stored with it."""


class QueueNotFound(DurableQueueError):
    """The queue was destroyed, or the server lost its data; creating a `Queue` starts a new one."""


class QueueCorrupt(DurableQueueError):
    """What the server holds under this queue's keys is not what durableq writes."""


class UnsupportedFormat(DurableQueueError):
    """The queue was written by a newer durableq; it is left untouched."""


class RequestRefused(DurableQueueError):
    """The server does not know this request as it should; this call changed nothing.

    Its token was used for a different call, a later call has used its lane, or the call of the same
    list before it is lost on the server.
    """


class QueueClosed(DurableQueueError, RuntimeError):
    """The queue, or the client that it shares, was closed."""


class EmbeddedServerError(DurableQueueError):
    """The embedded server cannot be started, used or stopped; the message names the remedy."""


class ServerError(DurableQueueError):
    """The server did not run the operation; nothing changed."""


class ServerUnavailable(ServerError, redis.exceptions.ConnectionError):
    """The server is away, loading its data, or busy, and stayed so for as long as we try."""


class ServerRefused(ServerError):
    """The server refuses: out of memory, read-only, a disk error, missing rights, or the like."""


class OutcomeUnknown(DurableQueueError, redis.exceptions.ConnectionError):
    """The request was sent, no answer came, and the server stays away: it may have run.

    Repeat the same call with `request=error.request` within an hour to have its one effect and
    its true answer. `request` is "" for what may simply be repeated (`destroy`, and what goes in
    steps: `purge`, `redrive_all`, `purge_failed`; it then tells of those that were left).
    """

    def __init__(self, request: str, cause: str) -> None:
        super().__init__(request, cause)
        self.request = request
        self.cause = cause

    def __str__(self) -> str:
        if not self.request:
            return f"no answer, and it may have run ({self.cause}): repeat the call"
        return (
            f"no answer to request {self.request}, which may have run ({self.cause}): "
            "repeat the call with this request= to find out"
        )


_BY_CODE: dict[str, type[DurableQueueError]] = {
    "NOQUEUE": QueueNotFound,
    "NEWFORMAT": UnsupportedFormat,
    "CORRUPT": QueueCorrupt,
    "WRONGTYPE": QueueCorrupt,
    "REUSED": RequestRefused,
    "SUPERSEDED": RequestRefused,
    "OUTOFORDER": RequestRefused,
    "TOOLARGE": InvalidPayload,
}

TRANSIENT = frozenset({"LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN"})
"""Codes of servers that do not run a command now but will soon."""

NOT_RUN = frozenset({"NOSCRIPT", "AGAIN"})
"""Codes of calls that did not run and are sent again at once."""

_CODES = (
    *_BY_CODE,
    *TRANSIENT,
    *NOT_RUN,
    "OOM",
    "READONLY",
    "MISCONF",
    "NOREPLICAS",
    "NOPERM",
    "NOAUTH",
    "WRONGPASS",
)
_CODE = re.compile(rf"(?<![A-Z])({'|'.join(_CODES)})(?![A-Z])")
_BY_CLASS: tuple[tuple[type[Exception], str], ...] = (
    # redis-py turns these replies into classes and drops the code from their text.
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.NoScriptError, "NOSCRIPT"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.AuthenticationError, "NOAUTH"),
)


_LEAVE = frozenset({"LOADING", "READONLY", "MASTERDOWN", "NOAUTH"})


def left_behind(replies: Sequence[Any]) -> bool:
    """Tell whether a server that gives these replies is one to connect to anew.

    It may no longer be the one that its name or address leads to.
    """
    return any(isinstance(reply, Exception) and code_of(reply) in _LEAVE for reply in replies)


def code_of(error: Exception) -> str:
    """Return the code word of a server's error reply, or "" for one we do not know.

    Redis 6.2 wraps an error from inside a script into another text, so the word is looked for.
    """
    for kind, code in _BY_CLASS:
        if isinstance(error, kind):
            return code
    found = _CODE.search(str(error))
    return found[1] if found else ""


def translated(error: Exception, queue: str) -> DurableQueueError:
    """Return our error for a server's error reply about `queue`."""
    code = code_of(error)
    kind = _BY_CODE.get(code, ServerUnavailable if code in TRANSIENT else ServerRefused)
    detail = str(error)
    if code in _BY_CODE and code in detail:
        detail = detail[detail.index(code) + len(code) :].strip()
    if kind is QueueNotFound:
        detail = (
            "there is no such queue: it was destroyed, or the server has lost its data; making a "
            "Queue of this name starts a new one"
        )
    elif kind is UnsupportedFormat:
        detail = f"it has format {detail}, and this durableq knows 1: upgrade durableq"
    elif code == "WRONGTYPE":
        detail = "one of its keys holds another type: something else has written there"
    elif kind is ServerRefused:
        detail = f"the server refuses: {f'{code} ' if code and code not in detail else ''}{detail}"
    return kind(f"queue {queue!r}: {detail}")
