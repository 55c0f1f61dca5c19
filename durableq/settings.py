"""Settings: what is stored with a queue, from arguments to the texts of its META hash and back.

Which fields there are is told by `FIELDS`, in the order of lua/open.lua and lua/settings.lua.
"""

from collections.abc import Mapping
from typing import Any

from durableq import arguments
from durableq.errors import InvalidArgument, QueueCorrupt
from durableq.models import UNSET, Keep, Settings

FIELDS = ("capacity", "lease", "max_attempts", "keep_count", "keep_age", "history")
MAX_CAPACITY = 2**53
MAX_HISTORY = 1_000_000


def check_capacity(capacity: object) -> int | None:
    """Return `capacity`, or raise: None is unbounded, 0 refuses every job."""
    if capacity is None:
        return None
    if isinstance(capacity, bool) or not isinstance(capacity, int):
        raise TypeError(f"a capacity is an int or None, not {type(capacity).__name__}")
    return arguments.whole(capacity, "capacity", 0, MAX_CAPACITY, or_else=", or None")


def stored_texts(**given: Any) -> dict[str, bytes]:
    """Return the texts to store for what is given of `Queue`'s settings; b"" is for none.

    Raises TypeError or InvalidArgument for a value that cannot be used.
    """
    texts: dict[str, bytes] = {}
    for name, value in given.items():
        if value is UNSET:
            continue
        if name == "capacity":
            capacity = check_capacity(value)
            texts[name] = b"" if capacity is None else b"%d" % capacity
        elif name == "lease":
            texts[name] = arguments.lease(value)
        elif name == "max_attempts":
            texts[name] = arguments.limit(value)
        elif name == "history":
            texts[name] = _history(value)
        else:
            texts |= _keep(value)
    return texts


def _history(value: object) -> bytes:
    if value is None:
        return b""
    return b"%d" % arguments.whole(value, "history", 1, MAX_HISTORY, or_else=", or None")


def _keep(value: object) -> dict[str, bytes]:
    keep = value if isinstance(value, Keep) else None
    if keep is None:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(
                "keep_failed is a number of jobs, a Keep(count=, age=) or None, not "
                f"{type(value).__name__}: {arguments.shown(value)}"
            )
        keep = Keep(value)
    count, age = b"", b""
    if keep.count is not None:
        count = b"%d" % arguments.whole(keep.count, "keep_failed's count", 0, MAX_CAPACITY)
    if keep.age is not None:
        age = arguments.milliseconds(keep.age, "keep_failed's age", least=0.0)
    return {"keep_count": count, "keep_age": age}


def read_settings(queue: str, codec: str, fields: Mapping[str, str]) -> Settings:
    """Return the settings that are stored for a queue, or raise QueueCorrupt."""
    for name, text in fields.items():
        if text and not (text.isascii() and text.isdecimal()):
            raise QueueCorrupt(
                f"queue {queue!r} has {name} {text!r}: this is not a setting that durableq writes"
            )
    numbers = {name: int(text) if text else None for name, text in fields.items()}
    lease, age = numbers["lease"], numbers["keep_age"]
    return Settings(
        numbers["capacity"],
        codec,
        None if lease is None else lease / 1000,
        numbers["max_attempts"],
        Keep(numbers["keep_count"], None if age is None else age / 1000),
        numbers["history"],
    )


def difference(given: Mapping[str, bytes], stored: Mapping[str, str]) -> str | None:
    """Return how what is given differs from what is stored, as an error says it."""
    for name, text in given.items():
        if text.decode() != stored[name]:
            has, wanted = (_told(name, value) for value in (stored[name], text.decode()))
            word, setting = _NAMES.get(name, (name, name))
            return (
                f"{word} {has}, not {wanted}: leave it out to adopt what is stored, or change it "
                f"with configure({setting}=...)"
            )
    return None


_NAMES = {
    "keep_count": ("keep_failed's count", "keep_failed"),
    "keep_age": ("keep_failed's age", "keep_failed"),
}
_TIMES = ("lease", "keep_age")


def _told(name: str, text: str) -> str:
    if not text:
        return "None (unbounded)" if name == "capacity" else "None"
    return f"{int(text) / 1000:g} seconds" if name in _TIMES else text


def changes(**given: Any) -> tuple[bytes, ...]:
    """Return the arguments of lua/configure.lua; at least one setting must be given."""
    texts = stored_texts(**given)
    if not texts:
        raise InvalidArgument(f"configure changes what it is given: one of {', '.join(given)}")
    return tuple(word for name, text in texts.items() for word in (name.encode(), text))
