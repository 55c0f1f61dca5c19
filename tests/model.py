"""The specification as a plain model: what every answer and every state must be."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Model:
    """A queue in memory, without any care for speed or survival."""

    capacity: int | None
    waiting: list[str] = field(default_factory=list)
    in_flight: list[str] = field(default_factory=list)
    payloads: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    retired: dict[str, str] = field(default_factory=dict)

    def enqueue(self, id: str, payload: str) -> bool:
        full = self.capacity is not None and len(self.payloads) >= self.capacity
        if id in self.payloads or id in self.retired or full:
            return False
        self.waiting.append(id)
        self.payloads[id], self.attempts[id] = payload, 0
        return True

    def reserve(self) -> list[Any] | None:
        if not self.waiting:
            return None
        id = self.waiting.pop(0)
        self.in_flight.append(id)
        self.attempts[id] += 1
        return [id, self.payloads[id], self.attempts[id]]

    def _holds(self, id: str, attempt: int) -> bool:
        return id in self.in_flight and self.attempts[id] == attempt

    def ack(self, id: str, attempt: int) -> bool:
        if not self._holds(id, attempt):
            return False
        self._retire(id, "finished")
        return True

    def retry(self, id: str, attempt: int) -> bool:
        if not self._holds(id, attempt):
            return False
        self.in_flight.remove(id)
        self.waiting.append(id)
        return True

    def cancel(self, id: str) -> bool:
        if id not in self.payloads:
            return False
        self._retire(id, "cancelled")
        return True

    def _retire(self, id: str, how: str) -> None:
        for place in (self.waiting, self.in_flight):
            if id in place:
                place.remove(id)
        del self.payloads[id], self.attempts[id]
        self.retired[id] = how

    def reason(self, name: str, *args: Any) -> str:
        """What `Outcome.reason` must say of an operation, asked before it is run."""
        id = args[0] if args else None
        if name == "reserve":
            return "done" if self.waiting else "empty"
        if id in self.retired:
            return self.retired[id]
        if name == "enqueue":
            if id in self.payloads:
                return "duplicate"
            full = self.capacity is not None and len(self.payloads) >= self.capacity
            return "full" if full else "done"
        if id not in self.payloads:
            return "unknown"
        if name == "cancel":
            return "done"
        if id in self.waiting:
            return "waiting"
        return "done" if self.attempts[id] == args[1] else "stale"


def observed(contents: dict[str, Any]) -> Model:
    """The model's state, read from a queue's raw keys (by part), checked for consistency."""
    text = lambda raw: {k.decode(): v.decode() for k, v in raw.items()}
    records = {id: record.split(" ") for id, record in text(contents.get("jobs", {})).items()}
    payloads = text(contents.get("payloads", {}))
    retired = {id.decode() for id in contents.get("retired", set())}
    cancelled = {id.decode() for id in contents.get("cancelled", set())}
    meta = text(contents["meta"])
    order = [id.decode() for part in ("front", "waiting") for id in contents.get(part, [])]
    ghosts = [id for id in order if id not in records]
    waiting = [id for id in order if id in records]
    leases = sorted((member[:13], member[13:].decode()) for member, _ in contents.get("leases", []))
    in_flight = [id for _, id in leases]

    assert payloads.keys() == records.keys()
    assert len(order) == len(set(order))
    assert sorted(waiting + in_flight) == sorted(records)
    assert all(id in cancelled for id in ghosts)
    assert len(ghosts) == int(meta.get("ghosts", 0))
    assert bool(waiting) or not order, "where no job waits the lists are empty"
    assert cancelled <= retired
    assert not retired & records.keys()
    for id, record in records.items():
        assert record[0] == ("1f" if id in in_flight else "1w")
        assert bool(record[9]) == (id in in_flight), "a claim token while in flight, and only then"
        assert record[1] == record[2], "every attempt is spent, for now"
        if id in in_flight:
            assert [member for member, there in leases if there == id] == [
                record[6].zfill(13).encode()
            ]
    return Model(
        int(meta["capacity"]) if meta["capacity"] else None,
        waiting,
        in_flight,
        payloads,
        {id: int(record[1]) for id, record in records.items()},
        {id: "cancelled" if id in cancelled else "finished" for id in retired},
    )
