"""Requests: the names of calls to the server, under which it keeps their receipts.

How calls are sent, and sent again, is in delivery.py.
"""

import os
import re
import secrets
from collections import deque
from dataclasses import dataclass
from itertools import count

from durableq.errors import InvalidName
from durableq.names import NAME_RULE, is_name

_TOKEN = re.compile(r"(.{1,150})/(\d{1,5})\.(\d{1,15})")


@dataclass(frozen=True, slots=True)
class Request:
    """What names a call to the server: its lane, its place there, and a number.

    A lane has places for the calls that are sent together. Of each place the server keeps the
    receipt of the last call that changed something; the number of a later one is higher.
    """

    lane: str
    place: int
    number: int

    @property
    def seat(self) -> str:
        """Lane and place, under which the server keeps the receipt."""
        return f"{self.lane}/{self.place}"

    @property
    def token(self) -> str:
        """The request token: how users see it."""
        return f"{self.seat}.{self.number}"

    def neighbor(self, steps: int) -> "Request":
        """Return the request of a call sent together with this one, `steps` behind it."""
        return Request(self.lane, self.place + steps, self.number)

    def following(self) -> "Request":
        """Return the request of the first call that is sent after these were answered."""
        return Request(self.lane, 0, self.number + 1)


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
            return Request(f"{self._session}.{next(self._names)}", 0, 1)
        return last.following()

    def answered(self, request: Request) -> None:
        """Let the lane of `request` be used again. Unanswered ones are left to be forgotten."""
        if request.lane.startswith(self._session):
            self._free.append(request)


def request_of(token: str) -> Request:
    """Return what a request token names: that of an `OutcomeUnknown`, or any name of a user's."""
    if not isinstance(token, str):
        raise TypeError(f"a request token is a str, not {type(token).__name__}")
    token = str.__str__(token)  # of a subclass, too, whose format() may say something else
    known = _TOKEN.fullmatch(token)
    lane = known[1] if known else token
    if not is_name(lane):
        raise InvalidName(f"request token {token!r:.80} is not allowed: use {NAME_RULE}")
    return Request(lane, int(known[2]), int(known[3])) if known else Request(lane, 0, 1)
