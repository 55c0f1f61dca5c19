"""Operations: each one once, without I/O: its script, its arguments, and how to read the reply.

The functions at the end each make an `Operation`; `Queue.execute` runs one or many. A `Plan` turns
a list of them into as few script calls as keep their order: consecutive ones of a kind share one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from durableq.codecs import Codec
from durableq.delivery import Call, Delivery
from durableq.errors import DecodeError, InvalidName, InvalidPayload, QueueCorrupt
from durableq.models import UNSET, Job, Occupancy, Outcome, Reason
from durableq.names import MAX_NAME, NAME_RULE, is_name
from durableq.scripts import script

MAX_PAYLOAD = 1_048_576
"""The largest encoded payload in bytes; lua/enqueue.lua refuses larger ones, too."""

MAX_ERROR = 4096
"""The most bytes of an error text that are kept."""

MAX_BATCH = 250
"""The most items in one call, which bounds the time that the server spends on it."""

MAX_BATCH_BYTES = 4 * MAX_PAYLOAD
MAX_RESERVES = 16
"""The same for reserves, whose payloads may be of any size."""


_MAX_ATTEMPT = 2**53
_DONE: Outcome[Any] = Outcome(Reason.DONE)


@dataclass(frozen=True, slots=True)
class Reply:
    """A script's reply to `count` items, with the request token and codec it belongs to."""

    value: Any
    count: int
    request: str
    codec: Codec[Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, not yet run: made by the functions of this module, run by `execute`."""

    kind: str
    read: Callable[[Reply], list[Outcome[Any]]]
    args: tuple[bytes, ...] = ()
    payload: Any = UNSET
    """What the queue's codec is to encode as one more argument."""
    last: bool = False
    """Whether its answer must be read before anything else is sent (see `Call`)."""
    most: int = MAX_BATCH
    """The most of its kind in one call."""

    def encoded(self, codec: Codec[Any]) -> tuple[bytes, ...]:
        """Return the arguments of the script for this item."""
        if self.payload is UNSET:
            return self.args
        return (*self.args, _encode(self.args[0], self.payload, codec))


class Plan:
    """The calls for `operations` on the queue with these `keys`, and the reading of the replies."""

    def __init__(
        self, operations: Sequence[Operation], keys: tuple[bytes, ...], codec: Codec[Any]
    ) -> None:
        self.calls: list[Call] = []
        self._readers: list[Callable[[Reply], list[Outcome[Any]]]] = []
        self._codec = codec
        for operation, args, items in _batches(operations, codec):
            self._readers.append(operation.read)
            size = sum(map(len, args))
            made = script(operation.kind)
            self.calls.append(Call(made, keys, args, items, last=operation.last, size=size))

    def outcomes(self, delivery: Delivery) -> list[Outcome[Any]]:
        """Return an outcome for each operation answered so far."""
        outcomes: list[Outcome[Any]] = []
        for call, read, value, request in zip(
            self.calls, self._readers, delivery.replies, delivery.tokens, strict=False
        ):
            outcomes += read(Reply(value, call.count, request, self._codec))
        return outcomes


def _batches(
    operations: Sequence[Operation], codec: Codec[Any]
) -> Iterator[tuple[Operation, tuple[bytes, ...], int]]:
    """Yield runs of operations of one kind: the first of them, all arguments, how many."""
    first: Operation | None = None
    args: list[bytes] = []
    items = size = 0
    for operation in operations:
        if not isinstance(operation, Operation):
            raise TypeError(f"execute takes operations, not {type(operation).__name__}")
        more = operation.encoded(codec)
        more_size = sum(map(len, more))
        full = items == operation.most or size + more_size > MAX_BATCH_BYTES
        if first is not None and (operation.kind != first.kind or full):
            yield first, tuple(args), items
            first = None
        if first is None:
            first, args, items, size = operation, [], 0, 0
        args += more
        items += 1
        size += more_size
    if first is not None:
        yield first, tuple(args), items


# Arguments


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:60]!r}... ({len(text)} characters)"


def _is_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}: {value!r:.80}")
    return value


def _known_id(value: object) -> bytes:
    """Return the bytes of an id. One that breaks the rule for ids stays one that no job has."""
    return _is_text(value, "a job id")[: MAX_NAME + 1].encode("utf-8", "surrogatepass")


def _attempt(value: object) -> bytes:
    """Return the bytes of an attempt number; one that no job can have becomes 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"an attempt is an int, not {type(value).__name__}: {value!r:.80}")
    return b"%d" % value if 0 < value <= _MAX_ATTEMPT else b"0"


def _token(value: object) -> bytes:
    if value is None:
        return b""
    # An empty token is not the same as none: it is one that no reservation has.
    return _is_text(value, "a claim token")[:300].encode("utf-8", "surrogatepass") or b"-"


def _error_text(value: object) -> bytes:
    if value is None:
        return b""
    # An error text helps whoever looks into a failure: better mangled than refused.
    text = _is_text(value, "an error text")[:MAX_ERROR].encode("utf-8", "backslashreplace")
    return text[:MAX_ERROR].decode("utf-8", "ignore").encode()


def _encode(id: bytes, payload: Any, codec: Codec[Any]) -> bytes:
    try:
        data = codec.encode(payload)
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


# Replies


def _read_words(reply: Reply) -> list[Outcome[Any]]:
    """Read a reply of one text per item: a reason and what belongs to it."""
    if len(reply.value) != reply.count:
        raise QueueCorrupt(f"a script answered {len(reply.value)} items of {reply.count}")
    return [_DONE if words == b"ok" else _refusal(words.decode()) for words in reply.value]


def _refusal(words: str) -> Outcome[Any]:
    reason, *details = words.split()
    match reason, details:
        case "duplicate", [payload]:
            return Outcome(Reason.DUPLICATE, same_payload=payload == "same")
        case "full", [waiting, delayed, in_flight, capacity]:
            occupancy = Occupancy(int(waiting), int(delayed), int(in_flight), int(capacity))
            return Outcome(Reason.FULL, occupancy=occupancy)
        case "stale", [attempt]:
            return Outcome(Reason.STALE, attempt=int(attempt))
        case _, []:
            return Outcome(Reason(reason))
    raise QueueCorrupt(f"a script answered {words!r}")


def _read_jobs(reply: Reply) -> list[Outcome[Any]]:
    """Read the reply of lua/reserve.lua: as many jobs as there were, for `count` reserves.

    The answer to a repeated call has `void` ones: reserved the first time, and cancelled since.
    """
    value, codec = reply.value, reply.codec
    outcomes: list[Outcome[Any]] = []
    for at in range(5, 5 + 3 * int(value[0]), 3):
        id, attempt, data = value[at].decode(), int(value[at + 1]), value[at + 2]
        try:
            job = Job(id, codec.decode(data), attempt, reply.request)
        except Exception as error:
            broken = DecodeError(id, attempt, reply.request, data, codec.name)
            broken.__cause__ = error
            outcomes.append(Outcome(Reason.DONE, attempt=attempt, error=broken))
        else:
            outcomes.append(Outcome(Reason.DONE, job=job, attempt=attempt))
    outcomes += [Outcome(Reason.CANCELLED)] * int(value[4])
    return outcomes + [Outcome(Reason.EMPTY)] * (reply.count - len(outcomes))


# The operations


def enqueue(id: str, payload: Any = "") -> Operation:
    """Accept a new job at the tail of waiting; see `Queue.enqueue`."""
    if not is_name(_is_text(id, "a job id")):
        raise InvalidName(f"job id {_shown(id)} is not allowed: use {NAME_RULE}")
    return Operation("enqueue", _read_words, (id.encode(),), payload)


def reserve() -> Operation:
    """Hand out the oldest waiting job; see `Queue.reserve`."""
    return Operation("reserve", _read_jobs, last=True, most=MAX_RESERVES)


def ack(id: str, attempt: int, *, token: str | None = None) -> Operation:
    """Finish a job; see `Queue.ack`."""
    return Operation("ack", _read_words, (_known_id(id), _attempt(attempt), _token(token)))


def retry(
    id: str, attempt: int, *, error: str | None = None, token: str | None = None
) -> Operation:
    """Give a job back to the waiting tail; see `Queue.retry`."""
    args = (_known_id(id), _attempt(attempt), _token(token), _error_text(error))
    return Operation("retry", _read_words, args)


def cancel(id: str) -> Operation:
    """Remove an active job at once; see `Queue.cancel`."""
    return Operation("cancel", _read_words, (_known_id(id),))
