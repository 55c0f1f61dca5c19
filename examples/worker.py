"""A worker: takes jobs from a queue, handles and settles them, until SIGTERM or SIGINT.

    python examples/worker.py [QUEUE]    (else the environment's QUEUE, else "jobs")

It finishes the job in hand first, and goes on when a server that went away is back. It is an
example on the public interface, since the library has no worker loop yet: it polls, a job that
always fails comes back until it is cancelled, and one whose worker is killed stays in flight until
a later version has leases. It promises nothing beyond the README.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from durableq import DurableQueueError, Job, OutcomeUnknown, Queue, ServerUnavailable

PAUSE = 0.2  # seconds
told: list[int] = []  # the signals that tell us to end


def handle(job: Job[str]) -> None:  # your work goes here
    print(f"{job.id}, attempt {job.attempt}: {job.payload!r}", flush=True)


def work(queue: Queue[str]) -> None:
    while not told:
        if (job := answered(queue.reserve)) is None:
            time.sleep(PAUSE)
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
