"""Definition: a queue's name and settings as they were asked for, held against what is stored."""

from dataclasses import dataclass
from typing import Any, Literal

from durableq.codecs import BUILT_IN, TEXT, Codec
from durableq.delivery import Call
from durableq.errors import (
    InvalidArgument,
    InvalidName,
    QueueCorrupt,
    SettingsMismatch,
    UnsupportedFormat,
)
from durableq.keys import queue_keys, registry_key
from durableq.models import UNSET, Settings, Unset
from durableq.names import NAME_RULE, is_name, new_id
from durableq.scripts import script

FORMAT = "1"
PREFIX = "durableq"
MAX_CAPACITY = 2**53


def check_prefix(prefix: str) -> str:
    """Return `prefix`, or raise InvalidName: it obeys the rule for names."""
    if not isinstance(prefix, str):
        raise TypeError(f"a prefix is a str, not {type(prefix).__name__}")
    if not is_name(prefix):
        raise InvalidName(f"prefix {prefix!r:.80} is not allowed: use {NAME_RULE}")
    return str.__str__(prefix)  # of a subclass, too, whose format() may say something else


def check_capacity(capacity: object) -> int | None:
    """Return `capacity`, or raise: None is unbounded, 0 refuses every job."""
    if capacity is None:
        return None
    if isinstance(capacity, bool) or not isinstance(capacity, int):
        raise TypeError(f"a capacity is an int or None, not {type(capacity).__name__}")
    if not 0 <= capacity <= MAX_CAPACITY:
        shown = capacity if capacity.bit_length() < 100 else f"of {capacity.bit_length()} bits"
        raise InvalidArgument(f"capacity {shown} is not allowed: use 0 to 2**53, or None")
    return capacity


def _text(capacity: int | None) -> bytes:
    return b"" if capacity is None else b"%d" % capacity


@dataclass(frozen=True, slots=True)
class Definition:
    """What `Queue(...)` was given, checked; the calls that open, look at, change and end it."""

    name: str
    prefix: str
    capacity: int | None | Literal[Unset.UNSET]
    codec: Codec[Any] | None
    keys: tuple[bytes, ...]

    @classmethod
    def of(
        cls,
        name: str | None,
        prefix: str,
        capacity: int | None | Literal[Unset.UNSET],
        codec: Codec[Any] | None,
    ) -> "Definition":
        """Check the arguments of a queue's constructor; without a name a fresh one is made."""
        if name is None:
            name = new_id()
        elif not isinstance(name, str):
            raise TypeError(f"a queue name is a str, not {type(name).__name__}")
        elif not is_name(name):
            raise InvalidName(f"queue name {name!r:.80} is not allowed: use {NAME_RULE}")
        if capacity is not UNSET:
            check_capacity(capacity)
        if codec is not None and not (
            isinstance(getattr(codec, "name", None), str)
            and callable(getattr(codec, "encode", None))
            and callable(getattr(codec, "decode", None))
        ):
            raise TypeError(
                f"a codec, such as durableq.JSON, has a name, encode and decode, not {codec!r:.60}"
            )
        if codec is not None and not is_name(codec.name):
            raise InvalidName(f"codec name {codec.name!r:.80} is not allowed: use {NAME_RULE}")
        name, prefix = str.__str__(name), check_prefix(prefix)
        return cls(name, prefix, capacity, codec, queue_keys(prefix, name))

    def creating(self) -> list[Call]:
        """Return the calls that create the queue, or find it. Both may safely run twice."""
        given = self.capacity is not UNSET
        capacity = _text(self.capacity if self.capacity is not UNSET else None)
        args = ((self.codec or TEXT).name.encode(), b"%d" % given, capacity)
        return [
            # The registry is a hint: a name without a queue is skipped by whoever reads it.
            _command(b"SADD", registry_key(self.prefix), self.name.encode()),
            Call(script("open"), self.keys, args, tokened=False),
        ]

    def opened(self, reply: Any) -> Codec[Any]:
        """Return the codec to use, or raise if a setting given differs from the stored one."""
        stored = self.stored(reply)
        if self.capacity is not UNSET and self.capacity != stored.capacity:
            has, given = (
                "None (unbounded)" if capacity is None else str(capacity)
                for capacity in (stored.capacity, self.capacity)
            )
            raise SettingsMismatch(
                f"queue {self.name!r} has capacity {has}, not {given}: leave it out to adopt what "
                "is stored, or change it with configure(capacity=...)"
            )
        if self.codec is None and stored.codec not in BUILT_IN:
            raise SettingsMismatch(
                f"queue {self.name!r} stores payloads by the codec {stored.codec!r}, which is not "
                "built in: pass it as codec="
            )
        if self.codec is not None and self.codec.name != stored.codec:
            raise SettingsMismatch(
                f"queue {self.name!r} has codec {stored.codec!r}, not {self.codec.name!r}: leave "
                "it out to adopt what is stored"
            )
        return self.codec or BUILT_IN[stored.codec]

    def configuring(self, capacity: int | None) -> Call:
        """Return the call that changes the stored capacity."""
        return Call(script("configure"), self.keys, (_text(check_capacity(capacity)),))

    def destroying(self) -> list[Call]:
        """Return the calls that end the queue's lifetime."""
        return [
            # First the hint: whoever makes the queue anew lists it again.
            _command(b"SREM", registry_key(self.prefix), self.name.encode()),
            Call(script("destroy"), self.keys, (), tokened=False),
        ]

    def looking(self) -> list[Call]:
        """Return the call that reads the stored settings."""
        return [Call(script("settings"), self.keys, (), tokened=False)]

    def stored(self, reply: Any) -> Settings:
        """Read the reply of lua/open.lua and lua/settings.lua."""
        written, codec, capacity = (None if field is None else field.decode() for field in reply)
        if written != FORMAT:
            raise UnsupportedFormat(
                f"queue {self.name!r} has format {written}, and this durableq knows {FORMAT}: "
                "upgrade durableq"
            )
        if not codec or not (capacity == "" or (capacity and capacity.isdecimal())):
            raise QueueCorrupt(
                f"queue {self.name!r} has codec {codec!r} and capacity {capacity!r}: these are not "
                "settings that durableq writes"
            )
        return Settings(int(capacity) if capacity else None, codec)


@dataclass(frozen=True, slots=True)
class Registry:
    """The names of the queues under a prefix: a hint, held against the queues themselves."""

    prefix: str

    def listing(self) -> list[Call]:
        """Return the call that reads the hint."""
        return [_command(b"SMEMBERS", registry_key(check_prefix(self.prefix)))]

    def names(self, reply: Any) -> list[str]:
        """Read the reply of `listing`."""
        return sorted(name.decode() for name in reply)

    def checking(self, names: list[str]) -> list[Call]:
        """Return a call for each name that tells whether there is such a queue."""
        return [_command(b"EXISTS", queue_keys(self.prefix, name)[0]) for name in names]

    def existing(self, names: list[str], replies: list[Any]) -> list[str]:
        """Return the names whose reply to `checking` is yes."""
        return [name for name, reply in zip(names, replies, strict=True) if reply]


def _command(*words: bytes) -> Call:
    """Return a plain command that may safely run twice."""
    return Call(None, (), words, tokened=False)
