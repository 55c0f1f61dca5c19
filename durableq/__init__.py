"""durableq: a durable job queue on Redis or Valkey with exact semantics.

The public names, and nothing else. `operations` has what `Queue.execute` runs.
"""

from durableq import operations
from durableq.async_queue import AsyncQueue
from durableq.codecs import BYTES, JSON, TEXT, Codec
from durableq.errors import (
    DecodeError,
    DurableQueueError,
    EmbeddedServerError,
    InvalidArgument,
    InvalidName,
    InvalidPayload,
    OutcomeUnknown,
    QueueClosed,
    QueueCorrupt,
    QueueNotFound,
    RequestRefused,
    ServerError,
    ServerRefused,
    ServerUnavailable,
    SettingsMismatch,
    UnsupportedFormat,
)
from durableq.models import (
    Counts,
    Event,
    Exchange,
    Failure,
    FailureReason,
    Job,
    JobView,
    Keep,
    Occupancy,
    Outcome,
    Page,
    Position,
    Reason,
    Settings,
    Transition,
)
from durableq.names import new_id
from durableq.queue import Queue, queues

__version__ = "0.1.0"

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "AsyncQueue",
    "Codec",
    "Counts",
    "DecodeError",
    "DurableQueueError",
    "EmbeddedServerError",
    "Event",
    "Exchange",
    "Failure",
    "FailureReason",
    "InvalidArgument",
    "InvalidName",
    "InvalidPayload",
    "Job",
    "JobView",
    "Keep",
    "Occupancy",
    "Outcome",
    "OutcomeUnknown",
    "Page",
    "Position",
    "Queue",
    "QueueClosed",
    "QueueCorrupt",
    "QueueNotFound",
    "Reason",
    "RequestRefused",
    "ServerError",
    "ServerRefused",
    "ServerUnavailable",
    "Settings",
    "SettingsMismatch",
    "Transition",
    "UnsupportedFormat",
    "__version__",
    "new_id",
    "operations",
    "queues",
]
