"""`durableq scenario`: the harness of the queue's specification.

Mostly as a process; the long tables of cases go through the same door in this process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Backend

from durableq import queues
from durableq.arguments import MAX_PAYLOAD
from durableq.cli import main
from durableq.settings import MAX_CAPACITY

SCENARIOS = Path(__file__).parent / "scenarios"
PUBLISHED = [SCENARIOS / "examples.ndjson", SCENARIOS / "generated.ndjson"]

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]
Write = Callable[..., Path]


@pytest.fixture
def server(embedded: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """The server that the environment names; after each test it holds what it held before."""
    monkeypatch.setenv("DURABLEQ_URL", embedded.url)
    with embedded.client() as raw:
        before = queues(embedded.url), sorted(raw.keys())
        yield embedded
        assert (queues(embedded.url), sorted(raw.keys())) == before


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of lines: texts as they are, anything else as JSON."""

    def write(*lines: Any, name: str = "in.ndjson") -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join(_line(line) + b"\n" for line in lines))
        return path

    return write


def _line(line: Any) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()


def run(*words: str | Path, stdin: bytes = b"") -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "durableq", "scenario", *map(str, words)],
        check=False,
        input=stdin,
        capture_output=True,
        timeout=60,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return Done(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def run_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run` without a process of its own, which takes half a second."""

    def run_here(*words: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["durableq", "scenario", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Done(words, ended.value.code or 0, out, err)

    return run_here


def results(done: Done) -> list[Any]:
    """Return the value of each line printed by a run that must have succeeded without a word."""
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def complaint(done: Done, code: int) -> str:
    """Return the one line on stderr of a run that ended with `code` and printed no result."""
    assert (done.returncode, done.stdout) == (code, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def of(*ops: Any, capacity: Any = 1, **more: Any) -> dict[str, Any]:
    return {"capacity": capacity, "ops": list(ops), **more}


ONE = of(["enqueue", "a", "A"], ["enqueue", "b", "B"], ["reserve"], ["ack", "a", 1])
ONE_ANSWER = [True, False, ["a", "A", 1], True]
TWO = of(["reserve"], ["cancel", "nobody"])
TWO_ANSWER = [None, False]


# What it answers


def test_each_scenario_gives_one_line_with_a_position_for_each_operation(server, write):
    done = run(write(ONE, TWO))
    assert done.stdout == '[true,false,["a","A",1],true]\n[null,false]\n'
    assert (done.returncode, done.stderr) == (0, "")


def test_a_dash_reads_stdin(server):
    assert results(run("-", stdin=json.dumps(ONE).encode())) == [ONE_ANSWER]


def test_several_files_are_one_input_in_the_order_given(server, write):
    files = write(TWO, ONE, name="1.ndjson"), write(ONE, name="2.ndjson")
    assert results(run(*files)) == [TWO_ANSWER, ONE_ANSWER, ONE_ANSWER]


def test_a_file_and_stdin_go_together(server, write):
    stdin = json.dumps(TWO).encode()
    assert results(run(write(ONE), "-", stdin=stdin)) == [ONE_ANSWER, TWO_ANSWER]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ONE),
        json.dumps(ONE, indent=2),
        json.dumps(ONE, indent="\t") + "\n",
        "\n\n" + json.dumps(ONE, indent=2) + "\n\n",
        json.dumps(ONE, indent=2).replace("\n", "\r\n"),
        "\ufeff" + json.dumps(ONE, indent=2),
        json.dumps(ONE).replace("[[", "[\n[").replace("]]", "]\n]"),
    ],
    ids=["one line", "indented", "tabs", "blank lines around", "CRLF", "BOM", "own line breaks"],
)
def test_a_file_may_hold_one_object_printed_in_any_way(server, run_here, write, text):
    assert results(run_here(write(text))) == [ONE_ANSWER]


@pytest.mark.parametrize(
    "text",
    [
        "{one}\n{two}",
        "{one}\n{two}\n",
        "\n{one}\n\n   \n{two}\n\n\t\n",
        "\ufeff{one}\n{two}\n",
        "{one}\r\n{two}\r\n",
        "\ufeff\r\n{one}\r\n\r\n{two}\r\n",
        "  {one}  \n\t{two}\t\n",
    ],
    ids=["no newline at the end", "plain", "blank lines", "BOM", "CRLF", "all of it", "indented"],
)
def test_lines_may_end_and_be_set_apart_in_any_way(server, run_here, write, text):
    text = text.format(one=json.dumps(ONE), two=json.dumps(TWO))
    assert results(run_here(write(text))) == [ONE_ANSWER, TWO_ANSWER]


def test_new_makes_and_selects_a_queue_of_the_same_capacity_and_use_goes_back(server, write):
    scenario = of(
        ["enqueue", "a", "first"],
        ["new"],
        ["reserve"],
        ["enqueue", "a", "second"],
        ["enqueue", "b", ""],
        ["use", 0],
        ["reserve"],
        ["new"],
        ["enqueue", "a", "third"],
        ["use", 1],
        ["reserve"],
        ["ack", "a", 1],
        ["use", 0],
        ["ack", "a", 1],
        ["use", 2],
        ["ack", "a", 1],
    )
    assert results(run(write(scenario))) == [
        [
            *(True, None, None, True, False),
            *(None, ["a", "first", 1], None, True),
            *(None, ["a", "second", 1], True),
            *(None, True, None, False),
        ]
    ]


def test_use_may_name_the_queue_in_use(server, write):
    assert results(run(write(of(["use", 0], ["enqueue", "a", ""], ["use", 0], ["reserve"])))) == [
        [None, True, None, ["a", "", 1]]
    ]


@pytest.mark.parametrize(("capacity", "accepted"), [(None, 5), (0, 0), (1, 1), (3, 3), (99, 5)])
def test_capacity_bounds_what_is_accepted(server, run_here, write, capacity, accepted):
    ops = [["enqueue", f"job-{i}", ""] for i in range(5)]
    assert results(run_here(write(of(*ops, capacity=capacity)))) == [
        [True] * accepted + [False] * (5 - accepted)
    ]


def test_a_scenario_without_operations_has_no_positions(server, write):
    assert results(run(write(of(), of(capacity=None)))) == [[], []]


@pytest.mark.parametrize(
    "payload",
    ["", "\0", "a\nb\r\u2028", '"[]"', "é", "🦀", "x" * MAX_PAYLOAD],
    ids=["empty", "NUL", "line ends", "JSON", "two bytes", "four bytes", "the largest"],
)
def test_payloads_come_back_as_they_were(server, run_here, write, payload):
    scenario = of(["enqueue", "a", payload], ["reserve"])
    assert results(run_here(write(scenario))) == [[True, ["a", payload, 1]]]


def test_settling_what_no_reservation_holds_is_refused_and_not_malformed(server, write):
    attempts = [0, -1, 2, 10**30, -(10**30)]
    ids = ["b", "", "not an id", "x" * 1000, "\ud800", "a\n"]
    ops = [[name, "a", attempt] for name in ("ack", "retry") for attempt in attempts]
    ops += [[name, id, 1] for name in ("ack", "retry") for id in ids]
    ops += [["cancel", id] for id in ids]
    scenario = of(["enqueue", "a", ""], ["reserve"], *ops, ["ack", "a", 1])
    assert results(run(write(scenario))) == [[True, ["a", "", 1], *[False] * len(ops), True]]


def test_without_check_expectations_are_not_looked_at(server, write):
    assert results(run(write({**ONE, "expect": ["anything"]}))) == [ONE_ANSWER]


# Where it runs


def test_without_a_url_it_runs_on_its_own_embedded_server(write, short_folder):
    done = run(write(ONE))
    assert (done.returncode, json.loads(done.stdout)) == (0, ONE_ANSWER)
    assert "embedded server" in done.stderr
    assert (short_folder / "home" / "appendonlydir").is_dir()
    assert not (short_folder / "home" / "socket").exists(), "the server was stopped"


def test_the_option_goes_before_the_environment(server, redis7, write):
    with redis7.client() as raw:
        before = sorted(raw.keys())
        calls = raw.info("stats")["total_commands_processed"]
        assert results(run("--url", redis7.url, write(ONE))) == [ONE_ANSWER]
        assert raw.info("stats")["total_commands_processed"] > calls + 3
        assert sorted(raw.keys()) == before


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("unix:///nowhere/socket", 3, "unavailable"),
        ("redis://127.0.0.1:1/0", 3, "unavailable"),
        ("http://:secret@127.0.0.1:1/0", 2, "redis://HOST:PORT/DB"),
        ("nonsense", 2, "redis://HOST:PORT/DB"),
    ],
)
@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_server_that_cannot_be_used_is_told_in_one_line(monkeypatch, write, by, url, code, words):
    if by == "environment":
        monkeypatch.setenv("DURABLEQ_URL", url)
        done = run(write(ONE))
    else:
        done = run("--url", url, write(ONE))
    told = complaint(done, code)
    assert words in told
    assert "secret" not in told


def test_malformed_input_is_told_before_the_server_is_asked(write):
    done = run("--url", "unix:///nowhere/socket", write(ONE, "nonsense"))
    assert ":2: " in complaint(done, 2)


# --check


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda path: path.name)
@pytest.mark.parametrize("kind", ["embedded", "redis7"])
def test_the_published_scenarios_pass(request, file, kind):
    number = len(file.read_text().splitlines())
    assert number
    done = run("--check", "--url", request.getfixturevalue(kind).url, file)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{number} scenarios, 0 failed\n"


@pytest.mark.slow
def test_two_thousand_scenarios_of_the_published_size_pass(tmp_path):
    lines = PUBLISHED[1].read_text().splitlines()
    many = tmp_path / "many.ndjson"
    many.write_text("\n".join((lines * 7)[:2000]))
    done = run("--check", many)
    assert (done.returncode, done.stdout) == (0, "")


def test_each_failing_line_is_told_with_its_first_difference(server, write):
    path = write(
        {**ONE, "expect": ONE_ANSWER},
        {**ONE, "expect": [True, True, None, False]},
        "",
        {**TWO, "expect": [["a", "A", 1], False]},
        {**TWO, "expect": TWO_ANSWER},
    )
    done = run("--check", path)
    assert done.stdout.splitlines() == [
        f"{path}:2: position 1: expected true, got false",
        f'{path}:4: position 0: expected ["a", "A", 1], got null',
    ]
    assert (done.returncode, done.stderr) == (1, "4 scenarios, 2 failed\n")


def test_failing_lines_of_stdin_are_told_as_such(server):
    done = run("--check", "-", stdin=json.dumps({**TWO, "expect": [None, True]}).encode())
    assert done.stdout == "stdin:1: position 1: expected true, got false\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("expect", "difference"),
    [
        ([*ONE_ANSWER, None], "position 4: expected null, got nothing"),
        (ONE_ANSWER[:-1], "position 3: expected nothing, got true"),
        ([], "position 0: expected nothing, got true"),
        ([1, *ONE_ANSWER[1:]], "position 0: expected 1, got true"),
        ([True, 0, *ONE_ANSWER[2:]], "position 1: expected 0, got false"),
        ([True, None, *ONE_ANSWER[2:]], "position 1: expected null, got false"),
        (
            [True, False, ["a", "A", 1.0], True],
            'position 2: expected ["a", "A", 1.0], got ["a", "A", 1]',
        ),
        (
            [True, False, ["a", "A", True], True],
            'position 2: expected ["a", "A", true], got ["a", "A", 1]',
        ),
        (
            [True, False, ["a", "A"], True],
            'position 2: expected ["a", "A"], got ["a", "A", 1]',
        ),
    ],
)
def test_a_difference_is_found_however_small(server, run_here, write, expect, difference):
    path = write({**ONE, "expect": expect})
    done = run_here("--check", path)
    assert (done.returncode, done.stdout) == (1, f"{path}:1: {difference}\n")


@pytest.mark.parametrize(
    "more",
    [{}, {"expect": None}, {"expect": {}}, {"expect": "x"}],
    ids=["missing", "null", "an object", "a string"],
)
def test_check_needs_an_array_to_compare_with(server, run_here, write, more):
    path = write({**ONE, "expect": ONE_ANSWER}, {**ONE, **more})
    told = complaint(run_here("--check", path), 2)
    assert told.startswith(f"durableq: {path}:2: ")
    assert '"expect"' in told


# Malformed input

MALFORMED = {
    "no JSON": ("nonsense", "not JSON"),
    "half an object": ('{"capacity": 1, "ops": [', "not JSON"),
    "two objects": ("{} {}", "not JSON"),
    "single quotes": ("{'capacity': 1, 'ops': []}", "not JSON"),
    "nested too deeply": ("[" * 100_000, "nested"),
    "NaN": ('{"capacity": NaN, "ops": []}', "NaN"),
    "Infinity": ('{"capacity": -Infinity, "ops": []}', "Infinity"),
    "an array": ([], "object"),
    "a string": ('"x"', "object"),
    "null": ("null", "object"),
    "no capacity": ({"ops": []}, '"capacity"'),
    "no ops": ({"capacity": 1}, '"ops"'),
    "capacity -1": (of(capacity=-1), "capacity -1"),
    "capacity true": (of(capacity=True), "bool"),
    "capacity text": (of(capacity="2"), "str"),
    "capacity 1.5": (of(capacity=1.5), "float"),
    "capacity 1.0": (of(capacity=1.0), "float"),
    "capacity too large": (of(capacity=MAX_CAPACITY + 1), str(MAX_CAPACITY + 1)),
    "ops an object": ({"capacity": 1, "ops": {}}, '"ops"'),
    "ops null": ({"capacity": 1, "ops": None}, '"ops"'),
    "an op a string": (of(["reserve"], "reserve"), "operation 1"),
    "an op an object": (of({"reserve": []}), "operation 0"),
    "an op empty": (of([]), "operation 0"),
    "an op a number": (of([1]), "operation 0"),
    "an op unknown": (of(["steal", "a"]), "'steal'"),
    "an op in capitals": (of(["Reserve"]), "'Reserve'"),
    "enqueue of two": (of(["enqueue", "a"]), "enqueue"),
    "enqueue of four": (of(["enqueue", "a", "", ""]), "enqueue"),
    "reserve of one": (of(["reserve", 1]), "reserve"),
    "ack of one": (of(["ack", "a"]), "ack"),
    "cancel of none": (of(["cancel"]), "cancel"),
    "new of one": (of(["new", 1]), "new"),
    "use of none": (of(["use"]), "use"),
    "ack at text": (of(["ack", "a", "1"]), '"1"'),
    "ack at 1.0": (of(["ack", "a", 1.0]), "1.0"),
    "ack at true": (of(["ack", "a", True]), "true"),
    "ack at null": (of(["ack", "a", None]), "null"),
    "retry at text": (of(["retry", "a", "1"]), '"1"'),
    "id a number": (of(["cancel", 1]), "1 is not a string"),
    "payload null": (of(["enqueue", "a", None]), "null"),
    "id empty": (of(["enqueue", "", ""]), "''"),
    "id with a space": (of(["enqueue", "a b", ""]), "'a b'"),
    "id with a newline": (of(["enqueue", "a\n", ""]), r"'a\n'"),
    "id not ASCII": (of(["enqueue", "é", ""]), "'é'"),
    "id too long": (of(["enqueue", "x" * 129, ""]), "129"),
    "payload a lone surrogate": (of(["enqueue", "a", "\ud800"]), "surrogate"),
    "payload too large": (of(["enqueue", "a", "x" * (MAX_PAYLOAD + 1)]), str(MAX_PAYLOAD)),
    "payload too large as UTF-8": (of(["enqueue", "a", "é" * (MAX_PAYLOAD // 2 + 1)]), "limit"),
    "use too high": (of(["new"], ["use", 2]), "queue 2"),
    "use too early": (of(["use", 1], ["new"]), "queue 1"),
    "use negative": (of(["use", -1]), "queue -1"),
    "use true": (of(["new"], ["use", True]), "true"),
    "use text": (of(["use", "0"]), '"0"'),
    "not UTF-8": (b'{"capacity": 1, "ops": [["cancel", "\xff"]]}', "UTF-8"),
}


@pytest.mark.parametrize(("line", "words"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_input_is_told_with_file_and_line_and_nothing_is_run(
    server, run_here, write, line, words
):
    path = write(ONE, "", line, TWO)
    told = complaint(run_here(path), 2)
    assert told.startswith(f"durableq: {path}:3: ")
    assert words in told
    assert len(told) < 400


def test_a_malformed_first_line_of_several_is_the_one_that_is_named(server, write):
    path = write('{"capacity": 1, "ops": [["reserve"]]', ONE, TWO)
    assert complaint(run(path), 2).startswith(f"durableq: {path}:1: ")


def test_a_mistake_in_a_pretty_printed_object_is_told_with_its_line(server, write):
    lines = json.dumps(TWO, indent=1).splitlines()
    assert lines[4].strip() == '"reserve"'
    lines[4] = "reserve"
    path = write(*lines)
    assert complaint(run(path), 2).startswith(f"durableq: {path}:5: ")


def test_malformed_stdin_is_named_so(server):
    stdin = json.dumps(ONE).encode() + b"\n[]\n"
    assert complaint(run("-", stdin=stdin), 2).startswith("durableq: stdin:2: ")


def test_a_malformed_second_file_keeps_the_first_from_running(server, write):
    bad = write(ONE, "nonsense", name="bad.ndjson")
    assert complaint(run(write(ONE), bad), 2).startswith(f"durableq: {bad}:2: ")


@pytest.mark.parametrize(
    "text", ["", "\n", " \n\t\n\r\n", "\ufeff"], ids=["nothing", "newline", "blank", "BOM"]
)
def test_input_without_a_scenario_is_malformed(server, run_here, write, text):
    path = write(text)
    assert complaint(run_here(path), 2) == f"durableq: {path}: there is no scenario"


def test_a_file_that_is_not_there_is_told_in_one_line(server, tmp_path):
    path = tmp_path / "none.ndjson"
    assert complaint(run(path), 2) == f"durableq: {path}: No such file or directory"


def test_a_folder_is_told_in_one_line(server, tmp_path):
    assert complaint(run(tmp_path), 2) == f"durableq: {tmp_path}: Is a directory"


def test_a_file_must_be_named(server):
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "FILE" in done.stderr


def test_a_reader_that_goes_away_ends_it_without_noise(server, write):
    path = write(*[ONE] * 500)
    words = [sys.executable, "-m", "durableq", "scenario", str(path)]
    here, there = os.pipe()
    with subprocess.Popen(words, stdout=there, stderr=subprocess.PIPE) as process:
        os.close(there)
        os.read(here, 1)
        os.close(here)
        _, told = process.communicate(timeout=60)
    assert (process.returncode != 0, told) == (True, b"")
