"""Delivery: getting script calls run exactly once, without I/O.

A `Delivery` says what to send, reads what came back, and decides after trouble whether to send
again. The clients only move bytes and wait. Every call carries a request token, made of a lane and
a number, under which the server finds its receipt; so a call may be sent again until it is
answered. Calls that are sent together are chained: each runs only after the one before it.
"""

import os
import random
import re
import secrets
import time
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NoReturn, TypeAlias

from durableq import policy
from durableq.errors import (
    NOT_RUN,
    TRANSIENT,
    DurableQueueError,
    InvalidName,
    OutcomeUnknown,
    ServerUnavailable,
    code_of,
    translated,
)
from durableq.names import NAME_RULE, is_name
from durableq.scripts import Script

MAX_WINDOW = 64
"""The most calls sent together before their answers are read."""

MAX_WINDOW_BYTES = 4_194_304
MAX_RELOADS = 10
"""How often a server may have forgotten the scripts before we stop loading them again."""

_OWN_TOKEN = re.compile(r"([A-Za-z0-9_-]{12}\.\d+)\.(\d{1,15})")


Word: TypeAlias = bytes | str | int


@dataclass(frozen=True, slots=True)
class Request:
    """What names a call to the server: its lane, and its number there.

    A lane is a sequence of calls of which one at a time is under way; the server keeps the receipt
    of its last one that changed something.
    """

    lane: str
    number: int

    @property
    def token(self) -> str:
        """The request token: how users see it."""
        return f"{self.lane}.{self.number}"


class Lanes:
    """The lanes of one process's session with a server; any thread may use them."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._session = secrets.token_urlsafe(9)
        self._free: deque[Request] = deque()
        self._names = count()

    def next(self) -> Request:
        """Return a new request on a lane that no call under way uses."""
        if self._pid != os.getpid():
            self._renew()  # forked: the parent goes on with its lanes
        try:
            last = self._free.pop()
        except IndexError:
            return Request(f"{self._session}.{next(self._names)}", 1)
        return Request(last.lane, last.number + 1)

    def answered(self, request: Request) -> None:
        """Let the lane of `request` be used again. Unanswered ones are left to be forgotten."""
        if request.lane.startswith(self._session):
            self._free.append(request)


def request_of(token: str) -> Request:
    """Return what a request token of a user names: a request of ours, or any name."""
    if not isinstance(token, str):
        raise TypeError(f"a request token is a str, not {type(token).__name__}")
    if own := _OWN_TOKEN.fullmatch(token):
        return Request(own[1], int(own[2]))
    if not is_name(token):
        raise InvalidName(f"request token {token!r:.80} is not allowed: use {NAME_RULE}")
    return Request(token, 1)


@dataclass(slots=True)
class Call:
    """A script call for `count` items, or, without a script, a plain command.

    `tokened` calls carry a request token. `last` ends what is sent together: its answer must be
    read before anything that could change it is sent.
    """

    script: Script | None
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]
    count: int = 1
    tokened: bool = True
    last: bool = False
    size: int = 0
    request: Request | None = field(default=None, init=False)
    after: str = field(default="", init=False)

    @property
    def token(self) -> str:
        """The request token, once there is one."""
        return self.request.token if self.request else ""

    def command(self) -> tuple[Word, ...]:
        """Return the words to send."""
        if self.script is None:
            return self.args
        words = ("EVALSHA", self.script.digest, len(self.keys), *self.keys)
        if self.request is None:
            return (*words, *self.args)
        mark = zlib.crc32(b"\0".join(self.args), zlib.crc32(self.script.name.encode()))
        header = (self.request.lane, self.request.number, self.after, f"{mark:x}", self.count)
        return (*words, *header, *self.args)


class Delivery:
    """The delivery of `calls`, in order, for the queue named `queue`.

    `replies` fills up with their answers. A `request` token is that of the first call. Use:
    until `done`, send `commands()`, pass all their replies to `received`, or an error of the
    connection to `trouble`, and wait for the seconds that these return.
    """

    def __init__(
        self, queue: str, calls: Sequence[Call], lanes: Lanes, request: str | None = None
    ) -> None:
        self.replies: list[Any] = []
        self.tokens: list[str] = []
        self._queue, self._calls, self._lanes = queue, calls, lanes
        self._first = None if request is None else request_of(request)
        self._window: list[Call] = []
        self._used: list[Request] = []
        self._load: list[Script] = []
        self._uncertain = False
        self._tries, self._reloads, self._deadline = 0, 0, 0.0
        self.done = not calls
        if not self.done:
            self._fill()

    def _fill(self) -> None:
        """Choose the calls to send next and give them requests."""
        start, size = len(self.replies), 0
        for call in self._calls[start : start + MAX_WINDOW]:
            size += call.size
            if self._window and size > MAX_WINDOW_BYTES:
                break
            self._window.append(call)
            if call.last:
                break
        for call in self._window:
            if call.tokened:
                if self._first is not None:
                    call.request, self._first = self._first, None
                else:
                    call.request = self._lanes.next()
                    self._used.append(call.request)
        requests = [(call, call.request) for call in self._window if call.request]
        if len(requests) > 1:
            previous = "-"
            for call, request in requests:
                call.after = previous
                previous = f"{request.lane} {request.number}"

    def commands(self) -> list[tuple[Word, ...]]:
        """Return the commands to send now."""
        loads = [("SCRIPT LOAD", script.text) for script in self._load]
        return [*loads, *(call.command() for call in self._window)]

    def received(self, replies: Sequence[Any]) -> float:
        """Take in the replies to `commands`, errors as values; return the seconds to wait."""
        loads = len(self._load)
        for reply in replies[:loads]:
            if isinstance(reply, Exception):
                return self._refused(reply)
        self._load = []
        for reply in replies[loads:]:
            if isinstance(reply, Exception):
                return self._refused(reply)
            self.replies.append(reply)
            self.tokens.append(self._window.pop(0).token)
        for request in self._used:
            self._lanes.answered(request)
        self._used, self._uncertain, self._tries, self._reloads = [], False, 0, 0
        self.done = len(self.replies) == len(self._calls)
        if not self.done:
            self._fill()
        return 0.0

    def _refused(self, error: Exception) -> float:
        """Take in that the first call of the window has not run, nor those chained to it."""
        code = code_of(error)
        if code == "NOSCRIPT":
            # A restarted or failed-over server has lost them all.
            self._reloads += 1
            if self._reloads > MAX_RELOADS:
                self._give_up(translated(error, self._queue), error)
            scripts = {call.script for call in self._window if call.script}
            self._load = sorted(scripts, key=lambda script: script.name)
        if code in NOT_RUN:
            return 0.0
        if code in TRANSIENT:
            return self._again(error)
        return self._give_up(translated(error, self._queue), error)

    def trouble(self, error: Exception, *, sent: bool, patient: bool) -> float:
        """Take in an error of the connection; return the seconds to wait before sending again.

        `sent` says whether the commands may have reached the server, `patient` whether it is
        worth waiting for (a server that was never reached is more likely a mistaken address).
        """
        self._uncertain |= sent
        if code_of(error) not in ("", *TRANSIENT):
            self._give_up(translated(error, self._queue), error)
        if not patient:
            self._give_up(self._unavailable(error), error)
        return self._again(error)

    def _again(self, error: Exception) -> float:
        now = time.monotonic()
        self._tries += 1
        if self._tries == 1:
            self._deadline = now + policy.PATIENCE
        elif now > self._deadline:
            self._give_up(self._unavailable(error), error)
        return policy.resend_pause(self._tries, random.random())

    def _unavailable(self, error: Exception) -> ServerUnavailable:
        return ServerUnavailable(f"queue {self._queue!r}: the server is unavailable: {error}")

    def _give_up(self, failure: DurableQueueError, error: Exception) -> NoReturn:
        if self._uncertain and self._window[0].tokened:
            failure = OutcomeUnknown(self._window[0].token, str(error) or repr(error))
        raise failure from error
