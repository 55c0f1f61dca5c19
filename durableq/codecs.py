"""Codecs: how a payload becomes bytes and back, at the Python edge; the server never looks inside.

There is no codec that runs code from a payload (such as pickle), and none will be added.
"""

import json
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Codec(Protocol[T]):
    """A way to store payloads of type `T`.

    `name` is stored with the queue, so that every process is known to read what the others write;
    change it when the bytes change. `decode(encode(value))` must give the value again. `encode`
    raises TypeError or ValueError for a value it cannot store; whatever `decode` raises becomes a
    `DecodeError` that carries the bytes.
    """

    @property
    def name(self) -> str:
        """The name that is stored with a queue."""
        ...

    def encode(self, value: T, /) -> bytes:
        """Return the bytes of a payload."""
        ...

    def decode(self, data: bytes, /) -> T:
        """Return the payload that `encode` made into these bytes."""
        ...


class _Named(Generic[T]):
    name: str

    def __repr__(self) -> str:
        return f"durableq.{self.name.upper()}"


class _Text(_Named[str]):
    name = "text"

    def encode(self, value: str, /) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a text payload is a str, not {type(value).__name__}")
        return value.encode()

    def decode(self, data: bytes, /) -> str:
        return data.decode()


class _Bytes(_Named[bytes]):
    name = "bytes"

    def encode(self, value: bytes, /) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        if value == "":  # the payload that `enqueue` assumes when none is given
            return b""
        raise TypeError(f"a bytes payload is bytes, not {type(value).__name__}")

    def decode(self, data: bytes, /) -> bytes:
        return data


class _Json(_Named[Any]):
    name = "json"

    def encode(self, value: Any, /) -> bytes:
        # Without NaN and infinity, which JSON has no words for and other readers refuse.
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()

    def decode(self, data: bytes, /) -> Any:
        return json.loads(data.decode())


TEXT: Codec[str] = _Text()
"""Any text that UTF-8 can carry; lone surrogates are refused."""

BYTES: Codec[bytes] = _Bytes()
"""Bytes, as they are."""

JSON: Codec[Any] = _Json()
"""Whatever the standard library's json module carries, without NaN and infinity."""

BUILT_IN: dict[str, Codec[Any]] = {codec.name: codec for codec in (TEXT, BYTES, JSON)}
