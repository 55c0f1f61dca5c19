"""Keys: the names of a queue's keys, in the order in which lua/lib/keys.lua binds them.

What each key holds is told in docs/design.md; nothing else in Python names a key.
"""

PARTS = (
    "meta",
    "waiting",
    "front",
    "ranked",
    "delayed",
    "leases",
    "jobs",
    "payloads",
    "errors",
    "headers",
    "failed",
    "failures",
    "retired",
    "cancelled",
    "receipts",
    "bell",
    "room",
    "promised",
    "workers",
    "history",
)


def queue_keys(prefix: str, name: str) -> tuple[bytes, ...]:
    """Return every key of the queue `name`; the braces put them into one cluster slot."""
    return tuple(f"{prefix}:{{{name}}}:{part}".encode() for part in PARTS)


def registry_key(prefix: str) -> bytes:
    """Return the key of the set of queue names: a hint, outside any queue's slot."""
    return f"{prefix}:queues".encode()
