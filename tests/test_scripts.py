"""The scripts as texts, and each of them on a real server beside the fake one."""

import hashlib
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support import Backend, dump

from durableq import operations, scripts
from durableq.errors import code_of
from durableq.keys import PARTS, queue_keys

LUA = Path(__file__).parents[1] / "lua"
NAMES = sorted(path.stem for path in LUA.glob("*.lua"))
HELPERS = sorted(path.stem for path in (LUA / "lib").glob("*.lua"))
KEYS = queue_keys("durableq", "differential")


@pytest.mark.parametrize("name", NAMES)
def test_a_script_opens_with_its_signature(name: str) -> None:
    first = (LUA / f"{name}.lua").read_text().splitlines()[0]

    assert re.match(rf"-- {name}\(.*\) -> ", first)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_composed_of_its_helpers_each_once(name: str) -> None:
    made = scripts.script(name)

    assert "-- include" not in made.text
    assert made.text.count("= unpack(KEYS)\n") == 1
    assert made.digest == hashlib.sha1(made.text.encode()).hexdigest()
    defined = re.findall(r"^local function (\w+)", made.text, re.MULTILINE)
    assert len(defined) == len(set(defined))


@pytest.mark.parametrize("name", NAMES)
def test_every_helper_that_a_script_pastes_is_used(name: str) -> None:
    text = scripts.script(name).text

    for function in re.findall(r"^local function (\w+)", text, re.MULTILINE):
        if function in ("split", "refuse", "read", "write", "fresh", "plus", "member"):
            continue  # of helpers that are pasted for another of their functions
        assert len(re.findall(rf"\b{function}\(", text)) > 1, function


def test_the_keys_are_bound_in_one_order() -> None:
    text = (LUA / "lib" / "keys.lua").read_text()
    names = re.search(r"local ([A-Z,\s]+) = unpack", text)[1]

    assert [name.strip().lower() for name in names.split(",")] == list(PARTS)


@pytest.mark.parametrize("path", sorted(LUA.rglob("*.lua")), ids=lambda path: path.stem)
def test_a_script_keeps_the_house_rules(path: Path) -> None:
    text = path.read_text()
    code = re.sub(r"--.*", "", text)

    assert not re.search(r"\b(cmsgpack|cjson|struct|bit)\.", code)
    assert not text.startswith("#!")
    assert path.stem == "keys" or not re.search(r"KEYS\[", code)
    assert path.stem == "keys" or "redis.call" not in code  # `call` is its name
    assert not re.search(r"'(LREM|LPOS|LINSERT|SMEMBERS|HGETALL|KEYS|SCAN)'", code)
    assert max(map(len, text.splitlines())) <= 120


def test_no_python_lies_in_lua() -> None:
    assert not list(LUA.rglob("*.py"))


def test_every_operation_has_its_script_and_every_script_its_caller() -> None:
    made = {operations.enqueue("a"), operations.reserve(), operations.ack("a", 1)}
    made |= {operations.retry("a", 1), operations.cancel("a")}
    others = {"open", "settings", "configure", "destroy"}

    assert {operation.kind for operation in made} | others == set(NAMES)


# The differential test: the same calls on the same states, on each server.

HEADER = ("lane", "1", "", "f")
ARGUMENTS: dict[str, list[tuple[str, ...]]] = {
    "open": [("text", "0", ""), ("json", "1", "3")],
    "settings": [()],
    "destroy": [()],
    "configure": [(*HEADER, "1", "5"), (*HEADER, "1", "")],
    "enqueue": [
        (*HEADER, "1", "new", "payload"),
        (*HEADER, "3", "waits", "p", "new", "p", "new", "q"),
        (*HEADER, "2", "done", "p", "gone", ""),
    ],
    "reserve": [(*HEADER, "1"), (*HEADER, "3")],
    "ack": [
        (*HEADER, "1", "held", "1", ""),
        (*HEADER, "3", "held", "1", "token", "waits", "0", "", "never", "1", ""),
        (*HEADER, "2", "held", "2", "", "done", "1", ""),
    ],
    "retry": [
        (*HEADER, "1", "held", "1", "", "error"),
        (*HEADER, "2", "held", "1", "", "", "held", "1", "", "again"),
        (*HEADER, "2", "gone", "1", "", "", "waits", "1", "", ""),
    ],
    "cancel": [(*HEADER, "1", "held"), (*HEADER, "4", "waits", "waits", "gone", "never")],
}
HEADERS = [
    ("lane", "1", "-", "f"),
    ("lane", "1", "old 7", "f"),
    ("lane", "1", "old 6", "f"),
    ("old", "7", "", "f"),
    ("old", "7", "", "other"),
    ("old", "6", "", "f"),
    ("old", "8", "", "f"),
]


def state(raw: redis.Redis) -> None:
    """Put a state with something of everything on a server."""
    raw.delete(*KEYS)
    key = dict(zip(PARTS, KEYS, strict=True))
    raw.hset(
        key["meta"],
        mapping={"format": "1", "codec": "text", "capacity": "4", "sequence": "9", "ghosts": "1"},
    )
    raw.rpush(key["front"], "gone")
    raw.rpush(key["waiting"], "waits", "waits2")
    raw.hset(key["jobs"], "waits", "1w 1 1 0  0 8 1796059354123 15  ")
    raw.hset(key["jobs"], "waits2", "1w 0 0 0  0 9 1796059354999 0  ")
    raw.hset(key["jobs"], "held", "1f 1 1 0  0 3 1796059354001 -5 other.1 a worker")
    raw.zadd(key["leases"], {"0000000000003held": float("inf")})
    raw.hset(key["payloads"], mapping={"waits": "", "waits2": "two", "held": "\0"})
    raw.hset(key["errors"], "waits", "broken")
    raw.sadd(key["retired"], "done", "gone")
    raw.sadd(key["cancelled"], "gone")
    raw.hset(key["receipts"], "old", "7 1796059354999 f ok,duplicate same")


CASES = {
    name: [
        *ARGUMENTS[name],
        *(
            (*header, *args[4:])
            for header in HEADERS
            for args in ARGUMENTS[name][:1]
            if args[:4] == HEADER
        ),
    ]
    for name in NAMES
}


@pytest.fixture(scope="module")
def servers(embedded: Backend, redis7: Backend, fake: Backend) -> Iterator[list[redis.Redis]]:
    clients = [backend.client() for backend in (embedded, redis7, fake)]
    yield clients
    for client in clients:
        client.delete(*KEYS)
        client.close()


def run(raw: redis.Redis, name: str, args: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    """Return the reply (or the code of the error) and the contents, without the server's times."""
    try:
        reply: Any = raw.eval(scripts.script(name).text, len(KEYS), *KEYS, *args)
    except redis.ResponseError as error:
        reply = code_of(error) or str(error)
    contents = dump(raw, KEYS)
    for part, times in (("jobs", (7, 8)), ("receipts", (1,))):
        if isinstance(contents.get(part), dict):
            for id, text in contents[part].items():
                words = text.split(b" ")
                for at in times:
                    words[at] = b"T"
                contents[part][id] = b" ".join(words)
    return reply, contents


def same_everywhere(results: list[Any]) -> None:
    for result in results[1:]:
        assert result == results[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("missing", [None, "all", *PARTS])
def test_a_script_does_the_same_on_every_server(
    servers: list[redis.Redis], name: str, missing: str | None
) -> None:
    for args in CASES[name]:
        results = []
        for raw in servers:
            state(raw)
            if missing == "all":
                raw.delete(*KEYS)
            elif missing is not None:
                raw.delete(KEYS[PARTS.index(missing)])
            results.append(run(raw, name, args))

        same_everywhere(results)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", PARTS)
def test_a_key_of_a_wrong_type_is_the_same_error_everywhere_and_nothing_is_written(
    servers: list[redis.Redis], name: str, part: str
) -> None:
    for args in CASES[name]:
        results = []
        for raw in servers:
            state(raw)
            raw.set(KEYS[PARTS.index(part)], "wrong")
            before = dump(raw, KEYS)
            reply, contents = run(raw, name, args)
            if reply == "WRONGTYPE":
                assert dump(raw, KEYS) == before
            results.append((reply, contents))

        same_everywhere(results)


def test_random_walks_are_the_same_everywhere(servers: list[redis.Redis]) -> None:
    for raw in servers:
        state(raw)
    chance = random.Random(7)
    for number in range(400):
        name = chance.choice(["enqueue", "reserve", "ack", "retry", "cancel"])
        args = chance.choice(ARGUMENTS[name])
        args = (f"lane{number % 5}", str(number + 1), *args[2:])
        same_everywhere([run(raw, name, args) for raw in servers])
