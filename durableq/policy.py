"""Policy: pure decisions about time. Nothing here waits, reads a clock or draws a random number."""

PATIENCE = 10.0
"""Seconds for which a call goes on after its first trouble with the server."""

READ_TIMEOUT = 5.0
"""Seconds to wait for an answer or a connection where the user's client sets no limit."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5


def resend_pause(tries: int, chance: float) -> float:
    """Return the seconds to wait before try number `tries` + 1 (`tries` counts from 1).

    Doubling from 10 ms to half a second; `chance` in [0, 1) takes away up to half of it, so that
    clients that lost the same server do not come back in step.
    """
    doubled: float = _FIRST_PAUSE * 2 ** min(tries - 1, 10)
    return min(_LONGEST_PAUSE, doubled) * (1 - chance / 2)
