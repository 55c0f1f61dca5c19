"""Upkeep: what may be done with jobs that one does not hold.

Looking at them is in views.py. async_upkeep.py is the same, awaited.
"""

from datetime import datetime, timedelta
from typing import Any, TypeVar

from durableq import arguments, operations
from durableq.delivery import Call
from durableq.errors import OutcomeUnknown
from durableq.models import Outcome
from durableq.views import Views

T = TypeVar("T")


class Upkeep(Views[T]):
    """What may be done with jobs that one does not hold; `Queue` is what users make."""

    def cancel(self, id: str, *, request: str | None = None) -> bool:
        """Remove an active job at once; its id is retired, its reservation void.

        The order of the others is kept. False, and nothing changed, if the id is not active.

        Raises TypeError for an id of the wrong type.
        """
        return bool(self._run([operations.cancel(id)], request)[0])

    def reschedule(
        self,
        id: str,
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        request: str | None = None,
    ) -> bool:
        """Change when a waiting or delayed job is due, or its priority, or both.

        It counts as inserted now: it goes to the tail of its priority, or is delayed until then. A
        delayed job of which only the priority changes stays where it is. False, and nothing
        changed, if the job is in flight or not active.

        Raises TypeError or InvalidArgument for an argument that cannot be used, or if none is
        given.
        """
        operation = operations.reschedule(id, delay=delay, at=at, priority=priority)
        return bool(self._run([operation], request)[0])

    def purge(self) -> int:
        """Cancel all jobs that are waiting or delayed now; return how many there were.

        Those in flight go on, and those that are enqueued meanwhile stay. It goes in steps of 250
        jobs, each atomic: an interrupted call has done whole steps, and may be called again.
        """
        self._open()
        done, state, mark, until = 0, b"delayed", b"-", b""
        while state != b"done":
            step = self._definition.cancelling(state, mark, until)
            number, state, mark, until = self._step(step)
            done += int(number)
        return done

    def reap(self, *, request: str | None = None) -> Outcome[T]:
        """Recover jobs whose lease or delay has ended: up to 250, those first that ended first.

        Each goes to the waiting tail, or has failed if this was its last allowed attempt. Every
        reserve does the same for up to 64, so that nobody has to call this. The Outcome is true if
        there were any; `returned`, `promoted` and `failed` name them, `more` says whether more are
        due at once, `due` is the seconds until the next lease or delay ends.
        """
        return self._run([operations.reap()], request)[0]

    def redrive(
        self, id: str, *, max_attempts: int | None = None, request: str | None = None
    ) -> bool:
        """Put a failed job back to the waiting tail: its id is active again.

        Its payload, last error and attempt numbers go on; its budget of attempts is a fresh one, of
        `max_attempts` if given, else as it was enqueued, and its deaths count from 0.

        False, and nothing changed, if the job has not failed, its record was purged, or the queue
        is full.

        Raises TypeError or InvalidArgument for an argument that cannot be used.
        """
        operation = operations.redrive(id, max_attempts=max_attempts)
        return bool(self._run([operation], request)[0])

    def redrive_all(self, *, max_attempts: int | None = None) -> int:
        """Redrive the jobs that have failed so far, the oldest first, while there is room.

        Returns how many. It goes in steps of 250 jobs, each atomic: an interrupted call has done
        whole steps, and may be called again.

        Raises TypeError or InvalidArgument for a limit that cannot be used.
        """
        limit, until = arguments.limit(max_attempts), b""
        self._open()
        done, more = 0, True
        while more:
            step = self._definition.redriving(limit, until)
            number, going_on, until = self._step(step)
            done, more = done + int(number), going_on == b"1"
        return done

    def purge_failed(self, *, older_than: float | timedelta = 0) -> int:
        """Drop the records of the jobs that failed more than `older_than` seconds ago.

        Returns how many. Their ids stay retired. It goes in steps of 250 records.

        Raises TypeError or InvalidArgument for an age that cannot be used.
        """
        age = arguments.milliseconds(older_than, "older_than", least=0)
        self._open()
        done, more = 0, True
        while more:
            number, going_on = self._step(self._definition.purging(age))
            done, more = done + int(number), going_on == b"1"
        return done

    def _step(self, calls: list[Call]) -> Any:
        """Run one of several steps. None can be asked after alone; the whole may be repeated."""
        try:
            return self.client.run(self.name, calls)[0]
        except OutcomeUnknown as error:
            raise OutcomeUnknown("", error.cause) from error
