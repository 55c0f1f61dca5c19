"""The scripts as texts, and each of them on a real server beside the fake one."""

import hashlib
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from model import RUNNING, observed
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
    made |= {operations.retry("a", 1), operations.fail("a", 1), operations.release("a", 1)}
    made |= {operations.extend("a", 1), operations.cancel("a"), operations.reap()}
    made |= {operations.redrive("a"), operations.reschedule("a", delay=0)}
    others = {"open", "settings", "configure", "destroy"}
    others |= {"states", "failed", "redrive_all", "purge_failed"}
    others |= {"counts", "get", "jobs", "position", "history", "pause", "purge", "ring"}

    assert {operation.kind for operation in made} | others == set(NAMES)


# The differential test: the same calls on the same states, on each server.

MOST_USED = ("meta", "waiting", "delayed", "leases", "retired")

KEPT = 9_999_999_999_999
"""A moment in milliseconds that no test sees: promised room is kept, a lease runs."""

LATER = str(KEPT)
HEADER = ("lane", "1", "", "f")
ARGUMENTS: dict[str, list[tuple[str, ...]]] = {
    "open": [("text", "0", "", "", "", "", ""), ("json", "1", "3", "", "2", "", "9")],
    "settings": [()],
    "destroy": [()],
    "states": [(), ("waits", "free", "held", "done", "gone", "bad", "lost", "never")],
    "failed": [("0", "100"), ("1", "1")],
    "counts": [()],
    "get": [(id, "1") for id in ("waits", "low", "held", "later", "bad")] + [("gone", "")],
    "position": [(id,) for id in ("waits2", "high", "low", "free", "held", "never")],
    "jobs": [
        *((state, "", "100", "") for state in ("waiting", "delayed", "in_flight", "failed")),
        *(("waiting", after, "2", "1") for after in ("0 8", "-2199023255542 10", "3 3")),
        ("failed", "1500000000007 2", "1", "1"),
        ("in_flight", "7 5", "9", "1"),
    ],
    "history": [("", "100"), ("1500000000000-1", "1")],
    "ring": [()],
    "pause": [(*HEADER, "1", "1"), (*HEADER, "1", "")],
    "purge": [
        (*HEADER, "1", "delayed", "-", ""),
        (*HEADER, "1", "waiting", "-", ""),
        (*HEADER, "1", "waiting", "0 8", "1796059354001"),
    ],
    "configure": [
        (*HEADER, "1", "capacity", "10"),
        (*HEADER, "1", "capacity", "", "lease", "1000", "keep_count", "1", "history", ""),
    ],
    "enqueue": [
        (*HEADER, "1", "0", "new", "", "0", "", "payload"),
        (*HEADER, "2", "1", *("waits", "", "0", "", "p"), *("new", "2", "0", "", "p")),
        (*HEADER, "2", "0", *("n1", "", "5", "", "p"), *("n1", "", "0", "+0", "q")),
        (*HEADER, "2", "0", *("n1", "", "-1", "+1000", "p"), *("n2", "", "0", LATER, "p")),
        (
            *(*HEADER, "5", "0"),
            *("done", "", "0", "", "p"),
            *("gone", "", "0", "", ""),
            *("bad", "", "0", "", ""),
            *("n1", "", "0", "", ""),
            *("n2", "", "0", "", ""),
        ),
    ],
    "reserve": [
        (*HEADER, "1", "0", "", "", ""),
        (*HEADER, "3", "1", "60000", "1", "worker"),
        (*HEADER, "9", "0", "1000", "", ""),
    ],
    "ack": [
        (*HEADER, "1", "held", "1", ""),
        (*HEADER, "3", "held", "1", "token", "waits", "0", "", "never", "1", ""),
        (*HEADER, "2", "held", "2", "", "done", "1", ""),
        (*HEADER, "2", "runs", "2", "other.2", "lapsed", "1", ""),
    ],
    "retry": [
        (*HEADER, "1", "held", "1", "", "error", ""),
        (*HEADER, "1", "held", "1", "", "error", "+60000"),
        (*HEADER, "2", *("held", "1", "", "", LATER), *("held", "1", "", "again", "")),
        (*HEADER, "2", *("gone", "1", "", "", ""), *("waits", "1", "", "", "")),
        (*HEADER, "2", *("runs", "2", "", "", "+1"), *("last", "1", "", "at its limit", "+1")),
    ],
    "fail": [
        (*HEADER, "1", "held", "1", "", "error", ""),
        (
            *(*HEADER, "3"),
            *("runs", "2", "", "", ""),
            *("runs", "2", "", "", ""),
            *("last", "1", "", "again", ""),
        ),
        (*HEADER, "2", *("free", "1", "", "", ""), *("runs", "1", "", "", "")),
    ],
    "reschedule": [
        (*HEADER, "1", "waits", "+1000", ""),
        (*HEADER, "3", *("later", "", "7"), *("free", "", "0"), *("due", "+0", "")),
        (*HEADER, "3", *("waits", "", "3"), *("waits", LATER, ""), *("waits", "+0", "0")),
        (*HEADER, "3", *("held", "+1", ""), *("gone", "", "1"), *("never", "1", "1")),
    ],
    "release": [
        (*HEADER, "1", "held", "1", ""),
        (*HEADER, "3", "runs", "2", "", "lapsed", "1", "", "runs", "2", ""),
        (*HEADER, "2", "free", "1", "", "bad", "1", ""),
    ],
    "extend": [
        (*HEADER, "1", "held", "1", "", "60000"),
        (*HEADER, "2", "lapsed", "1", "", "1000", "held", "1", "", ""),
        (*HEADER, "1", "runs", "2", "", ""),
        (*HEADER, "2", "waits", "3", "", "1", "held", "2", "", "1"),
    ],
    "cancel": [
        (*HEADER, "1", "held"),
        (*HEADER, "4", "waits", "waits", "gone", "never"),
        (*HEADER, "3", "later", "high", "low"),
        (*HEADER, "4", "free", "runs", "bad", "lost"),
    ],
    "reap": [(*HEADER, "1")],
    "redrive": [
        (*HEADER, "1", "bad", ""),
        (*HEADER, "4", "worse", "5", "worse", "", "bad", "", "lost", ""),
        (*HEADER, "3", "waits", "", "held", "", "never", ""),
    ],
    "redrive_all": [(*HEADER, "1", "", ""), (*HEADER, "1", "2", "1")],
    "purge_failed": [(*HEADER, "1", "0"), (*HEADER, "1", "3600000")],
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


def state(raw: redis.Redis, *, expired: bool = True) -> None:
    """Put a state with something of everything on a server."""
    raw.delete(*KEYS)
    key = dict(zip(PARTS, KEYS, strict=True))
    settings = {"lease": "", "max_attempts": "3", "keep_count": "", "keep_age": "", "history": "9"}
    counters = {"sequence": "20", "ghosts": "1"}
    raw.hset(
        key["meta"],
        mapping={"format": "1", "codec": "text", "capacity": "13"} | settings | counters,
    )
    raw.rpush(key["front"], "0000000000000gone")
    raw.rpush(key["waiting"], "0000000000008waits", "0000000000009waits2")
    jobs = {
        "waits": "8 1w 3  3 0 5 0 1796059354123 15  ",  # the limit in force is used up
        "waits2": "9 1w 0  0 0 4! 0 1796059354999 0  ",
        "free": "7 1r 1  0 0 3 0 1796059354001 2  ",
        "held": "3 1f 1 other.1 1 0  0 1796059354001 -5 90000 a worker",
        "runs": "4 1f 2 other.2 2 1 3 0 1796059354001 5  ",
        "lapsed": "5 1f 1 other.3 1 0 3 0 1796059354001 5  ",
        "last": "6 1f 1 other.4 1 0 1! 0 1796059354001 5  ",
        "high": "10 1r 0  0 0  2 1796059354001 0  ",
        "low": "11 1r 0  0 0  -2 1796059354001 0  ",
        "later": "12 1d 0  0 0  0 1796059354001 0  ",
        "due": "13 1d 1  1 0  1 1796059354001 0  ",
    }
    raw.hset(key["jobs"], mapping=jobs)
    ends = {"3held": float("inf"), "4runs": KEPT}
    ends |= {"5lapsed": 7, "6last": 6} if expired else {"5lapsed": KEPT, "6last": KEPT}
    raw.zadd(key["leases"], {f"000000000000{member}": end for member, end in ends.items()})
    ranks = {"07free": 7 - 2**40, "10high": 10 - 4 * 2**40, "11low": 11 + 4 * 2**40}
    raw.zadd(key["ranked"], {f"00000000000{member}": rank for member, rank in ranks.items()})
    dues = {"12later": KEPT, "13due": 6 if expired else KEPT}
    raw.zadd(key["delayed"], {f"00000000000{member}": due for member, due in dues.items()})
    raw.hset(key["payloads"], mapping=dict.fromkeys(jobs, "") | {"waits2": "two", "held": "\0"})
    raw.hset(key["errors"], mapping={"waits": "broken", "bad": "bad"})
    failures = {
        "bad": "rejected 1 1x 1  1 0 3 0 1500000000000 7  a worker",
        "worse": "expired 2 1x 2  2 2 2! 0 1500000000000 7  ",
    }
    raw.hset(key["failures"], mapping=failures)
    raw.zadd(key["failed"], dict.fromkeys(("0000000000001bad", "0000000000002worse"), 15e11 + 7))
    raw.hset(key["payloads"], mapping={"bad": "of bad", "worse": ""})
    raw.sadd(key["retired"], "done", "gone", "bad", "worse", "lost")
    raw.sadd(key["cancelled"], "gone", "!bad", "!worse", "!lost")
    for number in (1, 2):
        words = {"event": "failed", "id": "bad", "attempt": "1", "worker": ""}
        raw.xadd(key["history"], words, id=f"1500000000000-{number}")
    raw.hset(key["receipts"], "old", "7 1796059354999 f ok,duplicate same")
    raw.rpush(key["room"], "1")
    raw.rpush(key["promised"], "1", KEPT)


def test_the_state_is_one_that_the_model_knows(servers: list[redis.Redis]) -> None:
    for raw in servers:
        state(raw)

        model = observed(dump(raw, KEYS))

        assert model.line() == ["high", "free", "waits", "waits2", "low"]
        assert model.dues == {"later": RUNNING, "due": 6}
        assert model.failed == ["bad", "worse"]
        assert model.leases == {"runs": RUNNING, "lapsed": 7, "last": 6}


def cases(name: str, part: str | None) -> list[tuple[str, ...]]:
    """The calls to make where a part is missing or wrong; the headers concern few parts."""
    plain = ARGUMENTS[name]
    if plain[0][:4] != HEADER or part not in (None, "meta", "receipts"):
        return plain
    return [*plain, *((*header, *plain[0][4:]) for header in HEADERS)]


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
    if name in ("reserve", "reap") and isinstance(reply, list):
        at = 1 if name == "reserve" else 0
        reply[at] = b"T" if len(reply[at]) > 1 else reply[at]  # when the next lease ends
    if name == "purge" and isinstance(reply, list) and len(reply) == 4:
        reply[3] = "T" if args[-1] == "" else reply[3]
    if name == "counts" and isinstance(reply, list):
        reply[-1] = "T"
    contents = dump(raw, KEYS)
    for part, times in (("jobs", (8, 9)), ("failures", (9, 10)), ("receipts", (1,))):
        if isinstance(contents.get(part), dict):
            for id, text in contents[part].items():
                contents[part][id] = UNTIL.sub(rb"\1,T", timeless(text, times))
    for part in ("failed", "leases", "delayed"):
        if isinstance(contents.get(part), list):
            known = (float("inf"), KEPT)
            contents[part] = sorted(
                (member, score if score < 10**12 or score in known else "T")
                for member, score in contents[part]
            )
    if isinstance(contents.get("history"), list):
        contents["history"] = [words for _, words in contents["history"]]
    for part in ("room", "promised"):
        if isinstance(contents.get(part), list):
            known = (b"1", b"%d" % KEPT)
            contents[part] = [time if time in known else "T" for time in contents[part]]
    return reply, contents


UNTIL = re.compile(rb"(,-|,[^,]+ \d+),\d{13}$")
"""In the receipt of a purge: the moment of the first of its calls."""


def timeless(text: bytes, times: tuple[int, ...]) -> bytes:
    words = text.split(b" ")
    for at in times:
        words[at] = b"T"
    return b" ".join(words)


def same_everywhere(results: list[Any]) -> None:
    for result in results[1:]:
        assert result == results[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "missing", [None, "all", *(pytest.param(part, marks=pytest.mark.slow) for part in PARTS)]
)
def test_a_script_does_the_same_on_every_server(
    servers: list[redis.Redis], name: str, missing: str | None
) -> None:
    for args in cases(name, missing):
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
@pytest.mark.parametrize(
    "part",
    [p if p in MOST_USED else pytest.param(p, marks=pytest.mark.slow) for p in PARTS],
)
def test_a_key_of_a_wrong_type_is_the_same_error_everywhere_and_nothing_is_written(
    servers: list[redis.Redis], name: str, part: str
) -> None:
    for args in cases(name, part):
        results = []
        for raw in servers:
            state(raw, expired=False)
            raw.set(KEYS[PARTS.index(part)], "wrong")
            before = dump(raw, KEYS)
            reply, contents = run(raw, name, args)
            if reply == "WRONGTYPE":
                assert dump(raw, KEYS) == before
            results.append((reply, contents))

        same_everywhere(results)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", PARTS)
def test_beside_expired_leases_a_wrong_type_leaves_everything_or_a_complete_reap(
    servers: list[redis.Redis], name: str, part: str
) -> None:
    for args in cases(name, part):
        results = []
        for raw in servers:
            state(raw)
            right = dump(raw, KEYS).get(part)
            raw.set(KEYS[PARTS.index(part)], "wrong")
            before = dump(raw, KEYS)
            reply, contents = run(raw, name, args)
            after = dump(raw, KEYS)
            if reply == "WRONGTYPE" and after != before:
                # A reserve recovers first, and looks only then at the waiting jobs.
                assert name == "reserve"
                whole = {key: value for key, value in after.items() if key != part}
                model = observed(whole if right is None else whole | {part: right})
                assert model.leases == {"runs": RUNNING}
                line = ["high", "due", "free", "waits", "waits2", "lapsed", "low"]
                assert model.line() == line
                assert model.dues == {"later": RUNNING}
                assert model.failed == ["bad", "worse", "last"]
            results.append((reply, contents))

        same_everywhere(results)


def test_random_walks_are_the_same_everywhere(servers: list[redis.Redis]) -> None:
    names = [name for name in NAMES if ARGUMENTS[name][0][:4] == HEADER]
    chance = random.Random(7)
    for number in range(500):
        if number % 25 == 0:  # before little is left to do
            for raw in servers:
                state(raw)
        name = chance.choice(names)
        args = chance.choice(ARGUMENTS[name])
        args = (f"lane{number % 5}", str(number + 1), *args[2:])
        same_everywhere([run(raw, name, args) for raw in servers])
