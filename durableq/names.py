"""Names: which text may be a job id or a queue name, and how to make new ones.

Raising for a bad name is done where it is used, with an error that fits.
"""

import re
import secrets
import time

NAME_RULE = "1 to 128 characters of A-Z a-z 0-9 _ - . : @ / + = ~"
MAX_NAME = 128

_NAME = re.compile(r"[A-Za-z0-9_\-.:@/+=~]{1,128}", re.ASCII)
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, in lower case


def is_name(text: str) -> bool:
    """Tell whether `text` may be a job id, a queue name or a request token."""
    return _NAME.fullmatch(text) is not None


def new_id() -> str:
    """Return a new unique id of 26 characters that sorts by the time it was made.

    The layout is that of a ULID (https://github.com/ulid/spec): 48 bits of Unix milliseconds,
    then 80 random bits. Ids made in the same millisecond sort in no particular order. The clock
    is this machine's, and serves for sorting only: uniqueness rests on the random bits.
    """
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
