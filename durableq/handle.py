"""Handle: what every queue has: its name and settings, opening, pausing, closing.

Running operations is in calls.py, looking at jobs in views.py.
async_handle.py is the same, awaited.
"""

from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar

from redis import Redis

from durableq.client import Client
from durableq.codecs import Codec
from durableq.definition import Definition, Registry
from durableq.errors import QueueNotFound
from durableq.models import UNSET, Keep, Settings, Unset

T = TypeVar("T")


class Handle(Generic[T]):
    """A queue's name, settings and connections; `Queue` is what users make."""

    def __init__(
        self,
        name: str | None,
        redis: "Redis | Client | str | None",
        codec: Codec[T] | None,
        prefix: str,
        **settings: Any,
    ) -> None:
        self._definition = Definition.of(name, prefix, codec, **settings)
        self._codec: Codec[Any] | None = None
        self._shared = isinstance(redis, Client)
        self.name = self._definition.name
        self.client = redis if isinstance(redis, Client) else Client(redis)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"a {kind} cannot be sent to another process: make one there, {kind}({self.name!r})"
        )

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def configure(
        self,
        *,
        capacity: int | None | Literal[Unset.UNSET] = UNSET,
        lease: float | timedelta | None | Literal[Unset.UNSET] = UNSET,
        max_attempts: int | None | Literal[Unset.UNSET] = UNSET,
        keep_failed: int | Keep | None | Literal[Unset.UNSET] = UNSET,
        history: int | None | Literal[Unset.UNSET] = UNSET,
        request: str | None = None,
    ) -> None:
        """Change stored settings; other clients obey with their next operation.

        What is left out stays. A capacity below the number of active jobs only refuses new ones; a
        lease or limit is that of reservations from now on. `request` is the token of an
        `OutcomeUnknown`.

        Raises TypeError or InvalidArgument for a value that cannot be used, or if none is given.
        """
        change = self._definition.configuring(
            capacity=capacity,
            lease=lease,
            max_attempts=max_attempts,
            keep_failed=keep_failed,
            history=history,
        )
        self._open()
        self.client.run(self.name, [change], request)

    def pause(self, *, request: str | None = None) -> bool:
        """Hand out no more jobs until `resume`; False if the queue was paused already.

        Everything else goes on: jobs are accepted and may be settled, leases and delays end.
        """
        return self._pausing(True, request)

    def resume(self, *, request: str | None = None) -> bool:
        """Hand out jobs again, and wake who waits for one; False if the queue was not paused."""
        return self._pausing(False, request)

    def settings(self) -> Settings:
        """Return the stored settings."""
        self._open()
        return self._definition.stored(self.client.run(self.name, self._definition.looking())[0])

    def destroy(self) -> None:
        """End the queue's lifetime: its jobs, retired ids and settings are gone.

        Later operations, of other clients, too, raise QueueNotFound until a new `Queue` is made.
        """
        self.client.run(self.name, self._definition.destroying())

    def queues(self) -> list[str]:
        """Return the sorted names of the queues on this server with this prefix."""
        registry = Registry(self._definition.prefix)
        names = registry.names(self.client.run(self.name, registry.listing())[0])
        return registry.existing(names, self.client.run(self.name, registry.checking(names)))

    def close(self) -> None:
        """Close this queue's connections; the jobs stay. Safe to call twice."""
        if not self._shared:
            self.client.close()

    def _pausing(self, paused: bool, request: str | None) -> bool:
        self._open()
        change = self._definition.pausing(paused)
        return bool(self.client.run(self.name, change, request)[0] == [b"1"])

    def _open(self) -> Codec[Any]:
        if self._codec is None:
            try:
                # Found first: a server that is full or read-only lets nothing be written.
                replies = self.client.run(self.name, self._definition.looking())
            except QueueNotFound:
                replies = self.client.run(self.name, self._definition.creating())
            self._codec = self._definition.opened(replies[-1])
        return self._codec
