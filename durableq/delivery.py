"""Delivery: getting script calls run exactly once, without I/O.

A `Delivery` says what to send, reads what came back, and decides after trouble whether to send
again. The clients only move bytes and wait. Every call carries a request token, made of a lane and
a number, under which the server finds its receipt; so a call may be sent again until it is
answered. Calls that are sent together are chained: each runs only after the one before it.
"""

import random
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from redis.exceptions import ResponseError

from durableq import policy
from durableq.errors import (
    NOT_RUN,
    TRANSIENT,
    DurableQueueError,
    OutcomeUnknown,
    RequestRefused,
    ServerUnavailable,
    code_of,
    translated,
)
from durableq.requests import Lanes, Request, request_of
from durableq.scripts import Script

MAX_WINDOW = 64
"""The most calls sent together before their answers are read."""

MAX_WINDOW_BYTES = 4_194_304
MAX_RELOADS = 10
"""How often a server may have forgotten the scripts before we stop loading them again."""

Word: TypeAlias = bytes | str


@dataclass(slots=True)
class Call:
    """A script call for `count` items, or, without a script, a plain command.

    `tokened` calls carry a request token. `last` ends what is sent together: its answer must be
    read before anything that could change it is sent. `hints` go ahead of `args` and are no part of
    what the token stands for: a call that is sent again may come with others.
    """

    script: Script | None
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]
    count: int = 1
    tokened: bool = True
    last: bool = False
    size: int = 0
    hints: tuple[bytes, ...] = ()
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
        words: tuple[Word, ...] = (
            "EVALSHA",
            self.script.digest,
            b"%d" % len(self.keys),
            *self.keys,
        )
        if self.request is None:
            return (*words, *self.hints, *self.args)
        mark = zlib.crc32(b"\0".join(self.args), zlib.crc32(self.script.name.encode()))
        number, count = b"%d" % self.request.number, b"%d" % self.count
        header = (self.request.seat, number, self.after, b"%x" % mark, count)
        return (*words, *header, *self.hints, *self.args)


class Delivery:
    """The delivery of `calls`, in order, for the queue named `queue`.

    `replies` fills up with their answers. A `request` token is that of the first call; those of the
    others follow from it, so that the rest of an interrupted list can be taken up again. Use: until
    `done`, send `commands()`, pass all their replies to `received`, or an error of the
    connection to `trouble`, and wait for the seconds that these return.
    """

    def __init__(
        self, queue: str, calls: Sequence[Call], lanes: Lanes, request: str | None = None
    ) -> None:
        self.replies: list[Any] = []
        self.tokens: list[str] = []
        self._queue, self._calls, self._lanes = queue, calls, lanes
        self._own = request is None
        self._request = None if request is None else request_of(request)
        self._window: list[Call] = []
        self._load: list[Script] = []
        # Whoever brings a token has sent it before, or may.
        self._uncertain = request is not None
        self._tries, self._reloads, self._deadline = 0, 0, 0.0
        self._patience: float | None = None
        self._asked, self._places = False, 0
        self.done = not calls
        if not self.done:
            self._fill()

    def _fill(self) -> None:
        """Choose the calls to send next and give them their requests."""
        self._asked = False
        start, size = len(self.replies), 0
        for call in self._calls[start : start + MAX_WINDOW]:
            size += call.size
            if self._window and size > MAX_WINDOW_BYTES:
                break
            self._window.append(call)
            if call.last:
                break
        tokened = [call for call in self._window if call.tokened]
        self._places = len(tokened)
        if not tokened:
            return
        base = self._request = self._request or self._lanes.next()
        previous = "-"
        for steps, call in enumerate(tokened):
            request = call.request = base.neighbor(steps)
            if len(tokened) > 1 or self._uncertain:
                call.after = previous
                previous = f"{request.seat} {request.number}"

    @property
    def next_token(self) -> str:
        """The request token of what is sent after this, if it is part of the same."""
        return self._request.token if self._request else ""

    def commands(self) -> list[tuple[Word, ...]]:
        """Return the commands to send now."""
        self._asked = True
        loads = [("SCRIPT", "LOAD", script.text) for script in self._load]
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
            # In this order: wherever it is interrupted, `resume` finds its way by the replies.
            self.tokens.append(self._window[0].token)
            self.replies.append(reply)
            self._window.pop(0)
        self._uncertain, self._tries, self._reloads = False, 0, 0
        self.done = len(self.replies) == len(self._calls)
        if self._request is not None:
            if self.done and self._own:
                self._lanes.answered(self._request)
            # Receipts of ours are not needed any more. A user may repeat the whole, however long.
            last, places = self._request, self._places
            self._request = last.following() if self._own else last.neighbor(places)
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
        if isinstance(error, DurableQueueError):
            self._give_up(error, error)
        if sent and not code_of(error):
            self._uncertain = True
            if self._window[0].tokened and not self._window[0].after:
                # Even if refused now it leaves a receipt: should the first sending still be under
                # way, it finds it and does not run behind our back.
                self._window[0].after = "-"
        refused = isinstance(error, ResponseError) and code_of(error) not in TRANSIENT
        if refused or code_of(error) not in ("", *TRANSIENT):
            self._give_up(translated(error, self._queue), error)
        if not patient:
            self._give_up(self._unavailable(error), error)
        return self._again(error)

    def hurry(self, patience: float) -> None:
        """Give up after so many seconds of trouble."""
        self._patience = patience

    def resume(self) -> bool:
        """Prepare to find out what became of an interrupted reserve, and of what was sent with it.

        False if there is nothing to find out. What was not sent yet stays unsent.
        """
        answered = len(self.replies)
        del self.tokens[answered:]
        self._window = [call for call in self._calls[answered:] if call.request]
        if not self._asked or not self._window or not self._window[-1].last:
            return False
        self._window[0].after = self._window[0].after or "-"
        self._uncertain, self._tries, self._load, self.done = True, 0, [], False
        self._calls = self._calls[: answered + len(self._window)]
        return True

    def _again(self, error: Exception) -> float:
        now = time.monotonic()
        self._tries += 1
        if self._tries == 1:
            self._deadline = now + (self._patience or policy.PATIENCE)
        elif now > self._deadline:
            self._give_up(self._unavailable(error), error)
        return policy.resend_pause(self._tries, random.random())

    def _unavailable(self, error: Exception) -> ServerUnavailable:
        return ServerUnavailable(f"queue {self._queue!r}: the server is unavailable: {error}")

    def _give_up(self, failure: DurableQueueError, error: Exception) -> NoReturn:
        if not self._uncertain or isinstance(failure, RequestRefused):
            if self._own and self._request is not None:
                self._lanes.answered(self._request)
        else:
            failure = OutcomeUnknown(
                self._window[0].token, f"queue {self._queue!r}: {str(error) or repr(error)}"
            )
        raise failure from (None if failure is error else error)
