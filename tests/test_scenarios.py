"""The published scenarios through the Python API, on every server and for both kinds of queue."""

import json
from pathlib import Path
from typing import Any

import pytest
from support import Lab

FILES = Path(__file__).parent / "scenarios"


def scenarios(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FILES / file).read_text().splitlines()]


def play(lab: Lab, scenario: dict[str, Any]) -> list[Any]:
    queues = [lab.queue(capacity=scenario["capacity"])]
    queue, results = queues[0], []
    for name, *args in scenario["ops"]:
        if name == "new":
            queue = lab.queue(capacity=scenario["capacity"])
            queues.append(queue)
            results.append(None)
        elif name == "use":
            queue = queues[args[0]]
            results.append(None)
        elif name == "reserve":
            job = queue.reserve()
            results.append(job and [job.id, job.payload, job.attempt])
        else:
            results.append(getattr(queue, name)(*args))
    return results


@pytest.mark.parametrize("number", range(4))
def test_the_published_examples(lab: Lab, number: int) -> None:
    scenario = scenarios("examples.ndjson")[number]

    assert play(lab, scenario) == scenario["expect"]


@pytest.mark.parametrize("part", range(3))
def test_the_generated_scenarios(lab: Lab, part: int) -> None:
    slower = lab.asynchronous or lab.backend.fake
    every = 12 if slower else 3  # the slower kinds play a quarter of them
    for scenario in scenarios("generated.ndjson")[part::every]:
        assert play(lab, scenario) == scenario["expect"]
