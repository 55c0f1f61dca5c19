"""A worker: takes jobs from a queue, handles and settles them, until SIGTERM or SIGINT.

    python examples/worker.py [QUEUE]    (else the environment's QUEUE, else "jobs")

It finishes the job in hand first, and goes on when a server that went away is back. It is an
example on the public interface, since the library has no worker loop yet. A job has LEASE seconds:
if its worker is killed, or takes longer without `queue.extend`, another one gets it. After ATTEMPTS
attempts it is failed, and kept: `queue.failed()` lists it, `queue.redrive(id)` puts it back.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from durableq import (
    DecodeError,
    DurableQueueError,
    Job,
    OutcomeUnknown,
    Queue,
    ServerUnavailable,
)

LEASE, PAUSE = 60, 0.2  # seconds
ATTEMPTS = 5
told: list[int] = []  # the signals that tell us to end


def handle(job: Job[str]) -> None:  # your work goes here
    print(f"{job.id}, attempt {job.attempt}: {job.payload!r}", flush=True)


def work(queue: Queue[str]) -> None:
    while not told:
        try:
            job = answered(queue.reserve, wait=1, lease=LEASE, max_attempts=ATTEMPTS)
        except DecodeError as error:  # no worker of this queue can read it
            note(str(error))
            answered(queue.fail, error.id, error.attempt, token=error.token, error=repr(error))
            continue
        if job is None:
            continue
        try:
            handle(job)
        except Exception as error:
            note(f"job {job.id} failed: {error!r}")
            held = answered(queue.retry, job.id, job.attempt, token=job.token, error=repr(error))
            time.sleep(PAUSE)  # it may be the only one, and fail again
        else:
            held = answered(queue.ack, job.id, job.attempt, token=job.token)
        if not held:
            note(f"job {job.id} was cancelled or settled by someone else meanwhile")


def answered(call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Repeat a call until the server answers; its request token lets it take effect only once."""
    request = None
    while True:
        try:
            return call(*args, **more, request=request)
        except (ServerUnavailable, OutcomeUnknown) as error:
            if told:
                raise  # who tells us to end does not wait for a server
            note(f"{error}; going on")
            request = getattr(error, "request", request)
            time.sleep(PAUSE)


def note(text: str) -> None:
    print(f"worker: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    try:
        with Queue(sys.argv[1] if sys.argv[1:] else os.environ.get("QUEUE") or "jobs") as queue:
            work(queue)
    except DurableQueueError as error:
        sys.exit(f"worker: {error}")
