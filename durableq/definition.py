"""Definition: a queue's name and settings as they were asked for, held against what is stored."""

from dataclasses import dataclass
from typing import Any

from durableq.arguments import known_id
from durableq.codecs import BUILT_IN, TEXT, Codec
from durableq.delivery import Call
from durableq.errors import (
    InvalidName,
    QueueCorrupt,
    SettingsMismatch,
    UnsupportedFormat,
)
from durableq.keys import PARTS, queue_keys, registry_key
from durableq.models import Settings
from durableq.names import NAME_RULE, is_name, new_id
from durableq.scripts import script
from durableq.settings import FIELDS, changes, difference, read_settings, stored_texts

FORMAT = "1"
PREFIX = "durableq"


def check_prefix(prefix: str) -> str:
    """Return `prefix`, or raise InvalidName: it obeys the rule for names."""
    if not isinstance(prefix, str):
        raise TypeError(f"a prefix is a str, not {type(prefix).__name__}")
    if not is_name(prefix):
        raise InvalidName(f"prefix {prefix!r:.80} is not allowed: use {NAME_RULE}")
    return str.__str__(prefix)  # of a subclass, too, whose format() may say something else


@dataclass(frozen=True, slots=True)
class Definition:
    """What `Queue(...)` was given, checked; the calls that open, look at, change and end it."""

    name: str
    prefix: str
    codec: Codec[Any] | None
    given: dict[str, bytes]
    keys: tuple[bytes, ...]

    @classmethod
    def of(
        cls, name: str | None, prefix: str, codec: Codec[Any] | None, **settings: Any
    ) -> "Definition":
        """Check the arguments of a queue's constructor; without a name a fresh one is made."""
        if name is None:
            name = new_id()
        elif not isinstance(name, str):
            raise TypeError(f"a queue name is a str, not {type(name).__name__}")
        elif not is_name(name):
            raise InvalidName(f"queue name {name!r:.80} is not allowed: use {NAME_RULE}")
        given = stored_texts(**settings)
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
        return cls(name, prefix, codec, given, queue_keys(prefix, name))

    def creating(self) -> list[Call]:
        """Return the calls that create the queue, or find it. Both may safely run twice."""
        fields = (self.given.get(name, b"") for name in FIELDS)
        args = ((self.codec or TEXT).name.encode(), *fields)
        return [
            # The registry is a hint: a name without a queue is skipped by whoever reads it.
            _command(b"SADD", registry_key(self.prefix), self.name.encode()),
            Call(script("open"), self.keys, args, tokened=False),
        ]

    def opened(self, reply: Any) -> Codec[Any]:
        """Return the codec to use, or raise if a setting given differs from the stored one."""
        codec, fields = self._fields(reply)
        if differing := difference(self.given, fields):
            raise SettingsMismatch(f"queue {self.name!r} has {differing}")
        if self.codec is None and codec not in BUILT_IN:
            raise SettingsMismatch(
                f"queue {self.name!r} stores payloads by the codec {codec!r}, which is not "
                "built in: pass it as codec="
            )
        if self.codec is not None and self.codec.name != codec:
            raise SettingsMismatch(
                f"queue {self.name!r} has codec {codec!r}, not {self.codec.name!r}: leave "
                "it out to adopt what is stored"
            )
        return self.codec or BUILT_IN[codec]

    def configuring(self, **settings: Any) -> Call:
        """Return the call that changes stored settings."""
        return Call(script("configure"), self.keys, changes(**settings))

    def destroying(self) -> list[Call]:
        """Return the calls that end the queue's lifetime."""
        return [
            # First the hint: whoever makes the queue anew lists it again.
            _command(b"SREM", registry_key(self.prefix), self.name.encode()),
            Call(script("destroy"), self.keys, (), tokened=False),
        ]

    def looking(self) -> list[Call]:
        """Return the call that reads the stored settings."""
        return [self._view("settings")]

    def states(self, *ids: str) -> list[Call]:
        """Return the call that tells how many jobs are active, and where these ids are."""
        return [self._view("states", *map(known_id, ids))]

    def counting(self) -> list[Call]:
        """Return the call that counts the jobs of each state."""
        return [self._view("counts")]

    def getting(self, id: str, payload: bool) -> list[Call]:
        """Return the call that looks at one job."""
        return [self._view("get", known_id(id), b"1" if payload else b"")]

    def paging(self, state: bytes, after: bytes, count: int, payload: bool) -> list[Call]:
        """Return the call that looks at some jobs of a state."""
        return [self._view("jobs", state, after, b"%d" % count, b"1" if payload else b"")]

    def finding(self, id: str) -> list[Call]:
        """Return the call that tells how many jobs are before a waiting one."""
        return [self._view("position", known_id(id))]

    def remembering(self, before: bytes, count: int) -> list[Call]:
        """Return the call that looks at transitions, the last ones before an earlier one."""
        return [self._view("history", before, b"%d" % count)]

    def failed(self, start: int, count: int) -> list[Call]:
        """Return the call that reads records of failed jobs."""
        return [self._view("failed", b"%d" % start, b"%d" % count)]

    def redriving(self, limit: bytes, until: bytes) -> list[Call]:
        """Return the call that redrives a bounded number of failed jobs."""
        return [Call(script("redrive_all"), self.keys, (limit, until))]

    def pausing(self, paused: bool) -> list[Call]:
        """Return the call that pauses the queue, or resumes it."""
        return [Call(script("pause"), self.keys, (b"1" if paused else b"",))]

    def ringing(self) -> list[Call]:
        """Return the call that wakes a waiter, if there is work."""
        return [self._view("ring")]

    def cancelling(self, state: bytes, after: bytes, until: bytes) -> list[Call]:
        """Return the call that cancels a bounded number of waiting and delayed jobs."""
        return [Call(script("purge"), self.keys, (state, after, until))]

    def purging(self, age: bytes) -> list[Call]:
        """Return the call that drops a bounded number of records of failed jobs."""
        return [Call(script("purge_failed"), self.keys, (age,))]

    def bell(self) -> tuple[bytes, ...]:
        """Return the blocking command that waits for work."""
        return b"BLPOP", self.keys[PARTS.index("bell")]

    def door(self) -> tuple[bytes, ...]:
        """Return the blocking command that waits for room."""
        room, promised = (self.keys[PARTS.index(part)] for part in ("room", "promised"))
        return b"BLMOVE", room, promised, b"LEFT", b"RIGHT"

    def stored(self, reply: Any) -> Settings:
        """Read the reply of lua/open.lua and lua/settings.lua."""
        codec, fields = self._fields(reply)
        return read_settings(self.name, codec, fields)

    def _view(self, name: str, *args: bytes) -> Call:
        """Return a call that changes no job."""
        return Call(script(name), self.keys, args, tokened=False)

    def _fields(self, reply: Any) -> tuple[str, dict[str, str]]:
        written, codec, *rest = (None if field is None else field.decode() for field in reply)
        if written != FORMAT:
            raise UnsupportedFormat(
                f"queue {self.name!r} has format {written}, and this durableq knows {FORMAT}: "
                "upgrade durableq"
            )
        fields = {name: text for name, text in zip(FIELDS, rest, strict=True) if text is not None}
        if not codec or len(fields) < len(FIELDS):
            raise QueueCorrupt(
                f"queue {self.name!r} has codec {codec!r} and settings {rest!r}: these are not "
                "what durableq writes"
            )
        read_settings(self.name, codec, fields)
        return codec, fields


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
