"""Arguments: what operations are given, checked and turned into the bytes of a script's arguments.

Wrong types are TypeErrors, values that cannot be used are InvalidArguments; nothing is sent then.
An id or attempt that only asks after a job may be anything of its type: it is one that no job has.
"""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from durableq.codecs import Codec
from durableq.errors import InvalidArgument, InvalidName, InvalidPayload
from durableq.names import MAX_NAME, NAME_RULE, is_name

MAX_PAYLOAD = 1_048_576
"""The largest encoded payload in bytes; lua/enqueue.lua refuses larger ones, too."""

MAX_ERROR = 4096
"""The most bytes of an error text that are kept."""

MAX_SECONDS = 365 * 24 * 3600
"""The longest lease, wait or age, in seconds: a year."""

MAX_DELAY = 100 * MAX_SECONDS
"""The longest delay, in seconds; `at` may be later."""

MAX_PRIORITY = 1000
"""The highest priority; the lowest is as far below 0. It is part of a score: lua/lib/jobs.lua."""

STATES = ("waiting", "delayed", "in_flight", "failed")
"""The states in which jobs can be listed."""

MAX_ATTEMPTS = 2**31 - 1
_MAX_NUMBER = 2**53
_MARK = re.compile(r"(inf|-?[0-9]{1,17}) [0-9]{1,13}")
_EPOCH = datetime.fromtimestamp(0, UTC)
_LAST = 253_402_300_799_999  # of the year 9999, in milliseconds: the end of what a datetime can be


def shown(value: object) -> str:
    """Return `value` as an error shows it, however large it is."""
    if isinstance(value, int) and value.bit_length() > 100:
        return f"an int of {value.bit_length()} bits"
    text = repr(value)
    size = len(value) if isinstance(value, str) else len(text)
    return text if len(text) <= 80 else f"{text[:60]}... ({size} characters)"


def whole(value: object, what: str, least: int, most: int, *, or_else: str = "") -> int:
    """Return an int between two bounds; `or_else` is what else an error proposes."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is an int, not {type(value).__name__}: {shown(value)}")
    if not least <= value <= most:
        bound = "2**53" if most == _MAX_NUMBER else str(most)
        raise InvalidArgument(
            f"{what} {shown(value)} is not allowed: use {least} to {bound}{or_else}"
        )
    return int(value)


def seconds(
    value: object, what: str, *, least: float = 0.0, most: int = MAX_SECONDS, or_else: str = ""
) -> float:
    """Return a duration in seconds, given as such or as a timedelta.

    `most` is that of whole years; `or_else` is what else an error proposes.
    """
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float):
        kind = type(value).__name__
        raise TypeError(f"{what} is seconds or a timedelta, not {kind}: {shown(value)}")
    else:
        number = value
    if not least <= number <= most:  # false for NaN, too
        bound = "a year" if most == MAX_SECONDS else f"{most // MAX_SECONDS} years"
        raise InvalidArgument(
            f"{what} {shown(value)} is not allowed: use {least:g} to {most} seconds ({bound})"
            f"{or_else}"
        )
    return float(number)


def milliseconds(
    value: object, what: str, *, least: float = 0.001, most: int = MAX_SECONDS, or_else: str = ""
) -> bytes:
    """Return a duration as the server has it: whole milliseconds, none shorter than was asked."""
    number = seconds(value, what, least=least, most=most, or_else=or_else)
    return b"%d" % math.ceil(round(number * 1000, 3))


def priority(value: object) -> bytes:
    """Return a priority."""
    return b"%d" % whole(value, "a priority", -MAX_PRIORITY, MAX_PRIORITY)


def due(delay: object, at: object) -> bytes:
    """Return when a job is due, as lua/lib/join.lua reads it: b"" for what is not given, or now.

    Only one of the two may be given. `at` may be any aware datetime: one that has passed is now.
    """
    if at is None:
        if delay is None:
            return b""
        or_else = ", or at= and a datetime"
        return b"+" + milliseconds(delay, "a delay", least=0.0, most=MAX_DELAY, or_else=or_else)
    if delay is not None:
        raise InvalidArgument(
            f"delay={shown(delay)} and at={shown(at)} were given: use one of them"
        )
    if not isinstance(at, datetime):
        raise TypeError(f"at is a datetime, not {type(at).__name__}: {shown(at)}")
    if at.utcoffset() is None:
        raise InvalidArgument(
            f"at={at!r} has no time zone: use an aware datetime, such as datetime.now(UTC)"
        )
    # In whole numbers: a float of seconds is not exact. A part of a millisecond counts as one.
    number = -((at - _EPOCH) // timedelta(milliseconds=-1))
    return b"%d" % min(max(number, 0), _LAST)


def lease(value: object) -> bytes:
    """Return a lease; of None, what stands for the queue's."""
    return b"" if value is None else milliseconds(value, "a lease")


def limit(value: object) -> bytes:
    """Return a number of attempts, the first included; of None, what stands for no limit here."""
    return b"" if value is None else b"%d" % whole(value, "max_attempts", 1, MAX_ATTEMPTS)


def worker(value: object) -> bytes:
    """Return the name of a worker."""
    if value is None:
        return b""
    if not is_name(text(value, "a worker's name")):
        raise InvalidName(f"a worker's name {shown(value)} is not allowed: use {NAME_RULE}")
    return str(value).encode()


def state(value: object) -> bytes:
    """Return the name of a state in which jobs can be listed."""
    if text(value, "a state") not in STATES:
        raise InvalidArgument(f"a state {shown(value)} is not known: use {', '.join(STATES)}")
    return str(value).encode()


def mark(value: object) -> bytes:
    """Return where a page goes on: the `next` of the one before, or None."""
    if value is None:
        return b""
    if not _MARK.fullmatch(text(value, "after")):
        raise InvalidArgument(f"after={shown(value)} is not the `next` of a page")
    return str(value).encode()


def text(value: object, what: str) -> str:
    """Return a str."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}: {shown(value)}")
    return value


def new_id(value: object) -> bytes:
    """Return an id that a new job may have."""
    if not is_name(text(value, "a job id")):
        raise InvalidName(f"job id {shown(value)} is not allowed: use {NAME_RULE}")
    return str.__str__(value).encode()  # of a subclass, too, whose format() may say something else


def known_id(value: object) -> bytes:
    """Return an id to ask after. One that breaks the rule for ids stays one that no job has."""
    return text(value, "a job id")[: MAX_NAME + 1].encode("utf-8", "surrogatepass")


def attempt(value: object) -> bytes:
    """Return an attempt number; one that no job can have becomes 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"an attempt is an int, not {type(value).__name__}: {shown(value)}")
    return b"%d" % value if 0 < value <= _MAX_NUMBER else b"0"


def token(value: object) -> bytes:
    """Return a claim token; None fits every reservation."""
    if value is None:
        return b""
    # An empty token is not the same as none: it is one that no reservation has.
    return text(value, "a claim token")[:300].encode("utf-8", "surrogatepass") or b"-"


def claim(id: object, number: object, claim_token: object) -> tuple[bytes, bytes, bytes]:
    """Return what says who holds a job: its id, attempt and claim token."""
    return known_id(id), attempt(number), token(claim_token)


def error_text(value: object) -> bytes:
    """Return an error text, cut at a character."""
    if value is None:
        return b""
    # It helps whoever looks into a failure: better mangled than refused.
    cut = text(value, "an error text")[:MAX_ERROR].encode("utf-8", "backslashreplace")
    return cut[:MAX_ERROR].decode("utf-8", "ignore").encode()


def payload(id: bytes, value: Any, codec: Codec[Any]) -> bytes:
    """Return the payload of job `id` as the codec encodes it."""
    try:
        data = codec.encode(value)
    except TypeError as error:
        raise TypeError(f"the payload of job {id.decode()!r}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(
            f"the payload of job {id.decode()!r} cannot be encoded by the codec "
            f"{codec.name!r}: {error}"
        ) from error
    if not isinstance(data, bytes):
        raise TypeError(f"the codec {codec.name!r} made {type(data).__name__}, not bytes")
    if len(data) > MAX_PAYLOAD:
        raise InvalidPayload(
            f"the payload of job {id.decode()!r} has {len(data)} bytes, and the limit is "
            f"{MAX_PAYLOAD}: store it elsewhere and enqueue where it is"
        )
    return data
