"""`durableq scenario`: the harness of the queue's specification.

Reading and checking the whole input comes first; then each scenario runs on queues of its own,
which are destroyed at the end. Queues share nothing and a scenario's operations are known
beforehand, so each queue's are executed as one list.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import Progress

from durableq import operations
from durableq.client import Client
from durableq.codecs import TEXT
from durableq.definition import PREFIX, Definition
from durableq.errors import DurableQueueError
from durableq.models import Outcome
from durableq.operations import Operation
from durableq.queue import Queue
from durableq.settings import check_capacity

_MAKERS: dict[str, Callable[..., Operation]] = {
    "enqueue": operations.enqueue,
    "reserve": operations.reserve,
    "ack": operations.ack,
    "retry": operations.retry,
    "cancel": operations.cancel,
}
_ARGUMENTS: dict[str, tuple[type, ...]] = {
    "enqueue": (str, str),
    "reserve": (),
    "ack": (str, int),
    "retry": (str, int),
    "cancel": (str,),
    "new": (),
    "use": (int,),
}
_TYPE_NAMES = {str: "a string", int: "an integer"}


class Malformed(Exception):
    """The input is not what a scenario looks like; the message says where and what."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario read: each queue's operations, and where each position's answer comes from."""

    place: str
    capacity: int | None
    queues: list[list[Operation]]
    answers: list[tuple[int, int] | None]
    """Queue and index of a position's operation; None for `new` and `use`."""
    expect: list[Any] | None


def main(files: list[str], url: str | None, *, check: bool) -> int:
    """Run the scenarios of `files`; return the exit code."""
    try:
        scenarios = [scenario for file in files for scenario in read(file, check=check)]
        if not scenarios:
            raise Malformed(f"{', '.join(files)}: there is no scenario")
    except Malformed as error:
        print(f"durableq: {error}", file=sys.stderr)
        return 2
    failed = 0
    client = Client(url)
    try:
        for scenario in _with_progress(scenarios, quiet=check):
            results = run(scenario, client)
            if not check:
                print(json.dumps(results, separators=(",", ":")))
            elif difference := first_difference(scenario, results):
                failed += 1
                print(difference)
    finally:
        client.close()
    if check:
        number = len(scenarios)
        print(f"{number} scenario{'' if number == 1 else 's'}, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


def _with_progress(scenarios: list[Scenario], *, quiet: bool) -> Iterator[Scenario]:
    console = Console(stderr=True)
    if not console.is_terminal or (sys.stdout.isatty() and not quiet):
        yield from scenarios
        return
    with Progress(console=console, transient=True) as progress:
        yield from progress.track(scenarios, description="scenarios")


def run(scenario: Scenario, client: Client) -> list[Any]:
    """Return what the scenario's operations answer, as JSON values."""
    with contextlib.ExitStack() as stack:
        outcomes: list[list[Outcome[str]]] = []
        for ops in scenario.queues:
            definition = Definition.of(None, PREFIX, None, capacity=scenario.capacity)
            # Before it is made: an interrupt may come at any time.
            stack.callback(client.run, definition.name, definition.destroying())
            queue = Queue(definition.name, capacity=scenario.capacity, redis=client)
            outcomes.append(queue.execute(ops))
        return [at and _value(outcomes[at[0]][at[1]], at, scenario) for at in scenario.answers]


def _value(outcome: Outcome[str], at: tuple[int, int], scenario: Scenario) -> Any:
    if scenario.queues[at[0]][at[1]].kind == "reserve":
        job = outcome.job
        return job and [job.id, job.payload, job.attempt]
    return bool(outcome)


def first_difference(scenario: Scenario, results: list[Any]) -> str | None:
    """Return a line on the first position that is not as expected, or None."""
    expect = scenario.expect or []
    for at in range(max(len(expect), len(results))):
        wanted = json.dumps(expect[at]) if at < len(expect) else "nothing"
        got = json.dumps(results[at]) if at < len(results) else "nothing"
        if wanted != got:
            return f"{scenario.place}: position {at}: expected {wanted}, got {got}"
    return None


# Reading


def read(file: str, *, check: bool) -> Iterator[Scenario]:
    """Yield the scenarios of a file, checked. Raises Malformed with file, line and reason."""
    name = "stdin" if file == "-" else file
    try:
        if file == "-":
            text = sys.stdin.buffer.read().decode()
        else:
            with open(file, "rb") as stream:
                text = stream.read().decode()
    except OSError as error:
        raise Malformed(f"{name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise Malformed(f"{name}:{line}: it is not UTF-8 text: {error}") from error
    text = text.removeprefix("\ufeff")
    for line, source in _objects(name, text):
        place = f"{name}:{line}"
        try:
            yield _scenario(place, source, check=check)
        except (Malformed, DurableQueueError, TypeError) as error:
            raise Malformed(f"{place}: {error}") from error


def _objects(name: str, text: str) -> Iterator[tuple[int, Any]]:
    """Yield line numbers and values: the whole text is one object, or each line is one."""
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        return
    try:
        _load(lines[0][1])
    except ValueError as first:
        # Not one a line: a single object over several lines, or nothing that we know.
        try:
            yield lines[0][0], _load(text)
        except ValueError as error:
            if len(lines) == 1 or _is_object(lines[1][1]):
                raise Malformed(f"{name}:{lines[0][0]}: it is not JSON: {first}") from first
            line = getattr(error, "lineno", lines[0][0])
            raise Malformed(f"{name}:{line}: it is not JSON: {error}") from error
        return
    for n, line in lines:
        try:
            yield n, _load(line)
        except ValueError as error:
            raise Malformed(f"{name}:{n}: it is not JSON: {error}") from error


def _load(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a JSON number")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _is_object(line: str) -> bool:
    try:
        return isinstance(_load(line), dict)
    except ValueError:
        return False


def _scenario(place: str, source: Any, *, check: bool) -> Scenario:
    if not isinstance(source, dict):
        raise Malformed(f"a scenario is an object, not {_shown(source)}")
    for key in ("capacity", "ops", *(["expect"] if check else [])):
        if key not in source:
            raise Malformed(f'the scenario has no "{key}"')
    capacity, ops, expect = source["capacity"], source["ops"], source.get("expect")
    if not isinstance(ops, list):
        raise Malformed(f'"ops" is an array, not {_shown(ops)}')
    if (check or expect is not None) and not isinstance(expect, list):
        raise Malformed(f'"expect" is an array, not {_shown(expect)}')
    check_capacity(capacity)
    queues: list[list[Operation]] = [[]]
    answers: list[tuple[int, int] | None] = []
    current = 0
    for at, op in enumerate(ops):
        try:
            name, args = _checked(op)
            if name == "new":
                current = len(queues)
                queues.append([])
            elif name == "use":
                if not 0 <= args[0] < len(queues):
                    raise Malformed(f"there is no queue {args[0]}: there are {len(queues)}")
                current = args[0]
            else:
                made = _MAKERS[name](*args)
                made.encoded(TEXT)
                queues[current].append(made)
        except (Malformed, DurableQueueError) as error:
            raise Malformed(f"operation {at}, {_shown(op)}: {error}") from error
        last = len(queues[current]) - 1
        answers.append(None if name in ("new", "use") else (current, last))
    return Scenario(place, capacity, queues, answers, expect)


def _checked(op: Any) -> tuple[str, list[Any]]:
    if not isinstance(op, list) or not op or not isinstance(op[0], str):
        raise Malformed("an operation is an array that begins with its name")
    name, *args = op
    if name not in _ARGUMENTS:
        raise Malformed(f"there is no operation {name!r}: use one of {', '.join(_ARGUMENTS)}")
    types = _ARGUMENTS[name]
    if len(args) != len(types):
        raise Malformed(f"{name} takes {len(types)} arguments, not {len(args)}")
    for arg, kind in zip(args, types, strict=True):
        if not isinstance(arg, kind) or isinstance(arg, bool):
            raise Malformed(f"{_shown(arg)} is not {_TYPE_NAMES[kind]}")
    return name, args


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
