"""Policy: pure decisions about time. Nothing here waits, reads a clock or draws a random number."""

PATIENCE = 10.0
"""Seconds for which a call goes on after its first trouble with the server."""

READ_TIMEOUT = 5.0
"""Seconds to wait for an answer or a connection where the user's client sets no limit."""

LONGEST_SLEEP = 2.0
"""Seconds after which a waiting call looks again, whatever rings: a ring may be lost with a waiter
that is killed, and lua/lib/bell.lua counts on it."""

LONGEST_LISTENING = 30.0
"""Seconds after which a listener, which may be on a dead connection, begins anew."""

LATE = 1.0
"""Seconds that a server may take longer than asked to end a wait, before we hold it for dead."""

LISTEN_AGAIN = 0.05
"""Seconds to wait after trouble with a connection that listens."""

POLL = 1.0
"""Seconds between two looks of `wait_for` and `join`."""

GIVE_BACK = 2.0
"""Seconds for which an interrupted reserve tries to hand back what it has reserved."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5


def resend_pause(tries: int, chance: float) -> float:
    """Return the seconds to wait before try number `tries` + 1 (`tries` counts from 1).

    Doubling from 10 ms to half a second; `chance` in [0, 1) takes away up to half of it, so that
    clients that lost the same server do not come back in step.
    """
    doubled: float = _FIRST_PAUSE * 2 ** min(tries - 1, 10)
    return min(_LONGEST_PAUSE, doubled) * (1 - chance / 2)


def next_look(due: float | None, left: float) -> float:
    """Return the seconds until a waiter is to look again that has so many `left`.

    `due` is in how many the next lease or delay ends, if any does.
    """
    return min(left, LONGEST_SLEEP, left if due is None else due)
