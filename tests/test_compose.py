"""docker-compose.yml and its Dockerfile: what they promise, as far as no engine is needed.

Every promise about their text is checked on a broken copy as well, where it must not hold.
"""

import copy
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from ruamel.yaml import YAML
from support import Backend, await_true, running

from durableq import Queue, Reason, operations
from durableq.program import find_program

CHECKOUT = Path(__file__).parents[1]
TEXT = (CHECKOUT / "docker-compose.yml").read_text()
DOCKERFILE = (CHECKOUT / "Dockerfile").read_text()
IGNORED = (CHECKOUT / ".dockerignore").read_text()


def parsed(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


COMPOSE = parsed(TEXT)


def options(compose: Any) -> dict[str, str]:
    """Return the options of the server's command."""
    words = compose["services"]["server"]["command"][1:]
    assert all(isinstance(word, str) for word in words)
    assert all(word.startswith("--") for word in words[::2])
    return {
        name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile: each one's word, and the rest of it."""
    lines = [line for line in dockerfile.splitlines() if line and not line.startswith("#")]
    pairs = [line.split(maxsplit=1) for line in "\n".join(lines).replace("\\\n", "").splitlines()]
    return [(word.upper(), rest.strip()) for word, rest in pairs]


def only(dockerfile: str, wanted: str) -> str:
    (found,) = (rest for word, rest in instructions(dockerfile) if word == wanted)
    return found


def copied(dockerfile: str) -> list[str]:
    """Return the sources of all COPY instructions."""
    found = [shlex.split(rest) for word, rest in instructions(dockerfile) if word == "COPY"]
    return [source for words in found for source in words[:-1]]


# What the files say

Check = Callable[[Any], Any]
Break = tuple[str, Any]


def services(compose: Any) -> list[Any]:
    return list(compose["services"].values())


def server(compose: Any) -> Any:
    return compose["services"]["server"]


def worker(compose: Any) -> Any:
    return compose["services"]["worker"]


def local(port: Any) -> bool:
    return isinstance(port, str) and port.startswith("127.0.0.1:")


def url_leads_to_the_server(compose: Any) -> bool:
    url = urlsplit(worker(compose)["environment"]["DURABLEQ_URL"])
    return (url.scheme, url.hostname, url.port) == ("redis", "server", 6379)


def data_is_on_a_named_volume(compose: Any) -> bool:
    name, _, there = server(compose)["volumes"][0].partition(":")
    return there == "/data" and name in compose["volumes"]


PROMISES: dict[str, tuple[Check, Break]] = {
    "no obsolete version": (lambda c: "version" not in c, ("version", "3.8")),
    "the image is Valkey's, pinned to a patch": (
        lambda c: re.fullmatch(r"valkey/valkey:\d+\.\d+\.\d+(-[\w.]+)?", server(c)["image"]),
        ("services.server.image", "valkey/valkey:9.1"),
    ),
    "every write is kept": (
        lambda c: (options(c)["appendonly"], options(c)["appendfsync"]) == ("yes", "always"),
        ("services.server.command.4", "everysec"),
    ),
    "nothing is evicted": (
        lambda c: options(c)["maxmemory-policy"] == "noeviction",
        ("services.server.command.8", "allkeys-lru"),
    ),
    "the data is on a named volume": (
        data_is_on_a_named_volume,
        ("services.server.volumes.0", "/data"),
    ),
    "ports of this machine alone": (
        lambda c: all(map(local, server(c)["ports"])) and "ports" not in worker(c),
        ("services.server.ports.0", "6379:6379"),
    ),
    "no host network": (
        lambda c: not any("network_mode" in s for s in services(c)),
        ("services.server.network_mode", "host"),
    ),
    "the worker starts when the server is healthy": (
        lambda c: worker(c)["depends_on"]["server"]["condition"] == "service_healthy",
        ("services.worker.depends_on.server.condition", "service_started"),
    ),
    "the worker's URL leads to the server": (
        url_leads_to_the_server,
        ("services.worker.environment.DURABLEQ_URL", "redis://localhost:6379/0"),
    ),
    "the worker has no server of its own": (
        lambda c: worker(c)["environment"]["DURABLEQ_EMBEDDED"] == "never",
        ("services.worker.environment.DURABLEQ_EMBEDDED", ""),
    ),
    "the queue's name comes from the environment": (
        lambda c: worker(c)["environment"]["QUEUE"] == "${QUEUE:-jobs}",
        ("services.worker.environment.QUEUE", "$QUEUE"),
    ),
    "what the worker is built from is there": (
        lambda c: (
            (CHECKOUT / worker(c)["build"]["context"]).samefile(CHECKOUT)
            and (CHECKOUT / worker(c)["build"]["dockerfile"]).is_file()
        ),
        ("services.worker.build.dockerfile", "Containerfile"),
    ),
    "the worker's program is there, and copied": (
        lambda c: (
            (CHECKOUT / worker(c)["command"][1]).is_file()
            and PurePosixPath(worker(c)["command"][1]).parts[0] in copied(DOCKERFILE)
        ),
        ("services.worker.command.1", "examples/workers.py"),
    ),
    "the worker can be scaled": (
        lambda c: "container_name" not in worker(c) and "ports" not in worker(c),
        ("services.worker.container_name", "worker"),
    ),
    "the worker has time to finish its job": (
        lambda c: int(worker(c)["stop_grace_period"].removesuffix("s")) > 30,
        ("services.worker.stop_grace_period", "10s"),
    ),
    "both come back": (
        lambda c: {s["restart"] for s in services(c)} == {"unless-stopped"},
        ("services.worker.restart", "no"),
    ),
    "no new privileges": (
        lambda c: all("no-new-privileges:true" in s["security_opt"] for s in services(c)),
        ("services.server.security_opt", []),
    ),
}


def broken(compose: Any, where: str, value: Any) -> Any:
    compose = copy.deepcopy(compose)
    *way, last = where.split(".")
    there = compose
    for step in way:
        there = there[int(step) if isinstance(there, list) else step]
    there[int(last) if isinstance(there, list) else last] = value
    return compose


@pytest.mark.parametrize("promise", PROMISES)
def test_the_compose_file_keeps_its_promise(promise: str) -> None:
    check, breaking = PROMISES[promise]
    assert check(COMPOSE)
    assert not check(broken(COMPOSE, *breaking)), "the check would let anything pass"


def rules(dockerignore: str) -> list[str]:
    return [line for line in dockerignore.splitlines() if line and not line.startswith("#")]


def pip(dockerfile: str) -> list[str]:
    """Return the command that installs durableq."""
    found = [shlex.split(rest) for word, rest in instructions(dockerfile) if word == "RUN"]
    (words,) = (words for words in found if words[:2] == ["pip", "install"])
    return words


def root_runs_it_all(dockerfile: str) -> bool:
    words = [word for word, _ in instructions(dockerfile)]
    return "RUN" not in words[words.index("USER") :]


BUILD_PROMISES: dict[str, tuple[Check, tuple[str, str]]] = {
    "its base is Python, pinned to a patch": (
        lambda d: re.fullmatch(r"python:3\.\d+\.\d+-slim(-\w+)?", only(d, "FROM")),
        ("^FROM .*$", "FROM python:3.13-slim"),
    ),
    "what it copies is there": (
        lambda d: all((CHECKOUT / source).exists() for source in copied(d)),
        ("^COPY lua lua$", "COPY scripts lua"),
    ),
    "nothing is copied but what is named": (
        lambda d: set(copied(d)) <= {rule[1:] for rule in rules(IGNORED) if rule[0] == "!"},
        ("^COPY lua lua$", "COPY . ."),
    ),
    "it installs a wheel and keeps no cache": (
        lambda d: "--no-cache-dir" in pip(d) and not {"-e", "--editable"} & set(pip(d)),
        ("--no-cache-dir", "--editable"),
    ),
    "it does not run as root, as a number tells": (
        lambda d: re.fullmatch(r"[1-9]\d*:[1-9]\d*", only(d, "USER")),
        ("^USER .*$", "USER 0:0"),
    ),
    "what it runs belongs to root": (
        lambda d: root_runs_it_all(d) and "--chown" not in d,
        (r"(?s)^(WORKDIR /src.*)(USER \S+\n)", r"\2\1"),
    ),
    "its lines are seen at once": (
        lambda d: "PYTHONUNBUFFERED=1" in only(d, "ENV").split(),
        ("PYTHONUNBUFFERED=1", "PYTHONUNBUFFERED="),
    ),
    "it starts the worker as the compose file does, without a shell": (
        lambda d: parsed(only(d, "CMD")) == worker(COMPOSE)["command"],
        ("^CMD .*$", "CMD python examples/worker.py"),
    ),
}


@pytest.mark.parametrize("promise", BUILD_PROMISES)
def test_the_dockerfile_keeps_its_promise(promise: str) -> None:
    check, (there, instead) = BUILD_PROMISES[promise]
    assert check(DOCKERFILE)
    mistaken = re.sub(there, instead, DOCKERFILE, flags=re.MULTILINE)
    assert mistaken != DOCKERFILE
    assert not check(mistaken), "the check would let anything pass"


def test_what_is_not_copied_is_not_sent_to_the_builder() -> None:
    first, *others = rules(IGNORED)
    assert first == "*", "so .git, .venv and caches at the top stay out"
    assert {rule[1:] for rule in others if rule[0] == "!"} == set(copied(DOCKERFILE))
    assert others[-2:] == ["**/__pycache__", "**/*.py[cod]"], "the last rule that fits decides"


# What other programs make of them


def validated(path: Path) -> subprocess.CompletedProcess[str]:
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_compose_file_is_valid(tmp_path: Path) -> None:
    done = validated(CHECKOUT / "docker-compose.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    mistaken = tmp_path / "docker-compose.yml"
    mistaken.write_text(TEXT.replace("healthcheck:", "health_check:"))
    done = validated(mistaken)
    assert done.returncode == 1
    assert "health_check" in done.stdout + done.stderr


ANSWERS = {
    "healthy": ("echo PONG", True),
    "loading": ("echo LOADING Valkey is loading the dataset in memory", False),
    "away": ("echo Could not connect >&2; exit 1", False),
    "strange": ("echo NO PONG; echo PONGS", False),
    "silent": ("", False),
}


@pytest.mark.parametrize(("answer", "healthy"), ANSWERS.values(), ids=ANSWERS)
def test_the_health_check_takes_nothing_but_a_pong(
    tmp_path: Path, answer: str, healthy: bool
) -> None:
    client = tmp_path / "valkey-cli"
    client.write_text(f'#!/bin/sh\n[ "$*" = ping ] || exit 9\n{answer}\n')
    client.chmod(0o755)
    kind, command = server(COMPOSE)["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    done = subprocess.run(
        ["/bin/sh", "-c", command.replace("$$", "$")],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=False,
        capture_output=True,
    )
    assert (done.returncode == 0) == healthy


def words_of(options: dict[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def test_a_server_takes_the_options_and_keeps_what_it_accepted(short_folder: Path) -> None:
    wanted = options(COMPOSE)
    assert not {"dir", "port", "unixsocket", "bind"} & set(wanted), "they are the test's here"
    program = str(find_program().path)
    # Last, so that they are those that count.
    with running(program, short_folder, *words_of(wanted)) as url:
        with redis.Redis.from_url(url, decode_responses=True) as raw:
            assert {name: raw.config_get(name)[name] for name in wanted} == wanted
        with Queue("q", redis=url) as queue:
            assert queue.enqueue("a", "of a")
    # It was killed.
    with running(program, short_folder, *words_of(wanted)) as url, Queue("q", redis=url) as queue:
        assert queue.reserve().payload == "of a"


def test_a_server_refuses_an_option_that_it_does_not_know(short_folder: Path) -> None:
    program = str(find_program().path)
    words = words_of(options(COMPOSE) | {"appendfsync": "sometimes"})
    done = subprocess.run(
        [program, "--port", "0", "--dir", short_folder, *words],
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode != 0


@pytest.mark.slow
def test_what_the_dockerfile_copies_suffices(tmp_path: Path, embedded: Backend) -> None:
    root, python, here = tmp_path / "image", tmp_path / "venv" / "bin" / "python", Path()
    venv.create(tmp_path / "venv", with_pip=True)
    for word, rest in instructions(DOCKERFILE):
        words = shlex.split(rest)
        if word == "WORKDIR":
            here = root / rest.removeprefix("/")
            here.mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            for source in words[:-1]:
                copy_to(here / words[-1], CHECKOUT / source)
        elif word == "RUN":
            if words[0] == "pip":
                words = [str(python), "-m", *words]
            subprocess.run(words, cwd=here, check=True)
    told = [python, "-c", "import durableq; print(durableq.__file__)"]
    found = subprocess.run(told, cwd=here, check=True, capture_output=True, text=True).stdout
    assert Path(found.strip()).is_relative_to(tmp_path / "venv")

    with Queue(redis=embedded.url) as queue:
        queue.enqueue("a", "of a")
        process = subprocess.Popen(
            [python, *worker(COMPOSE)["command"][1:]],
            cwd=here,
            env=os.environ | {"DURABLEQ_URL": embedded.url, "QUEUE": queue.name},
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert process.stdout.readline() == "a, attempt 1: 'of a'\n"
                again = operations.enqueue("a")
                await_true(lambda: queue.execute(again).reason is Reason.FINISHED)
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
            finally:
                process.kill()
        queue.destroy()


def copy_to(target: Path, source: Path) -> None:
    """Copy as COPY does: the contents of a folder, or a file into a folder."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        shutil.copy(source, target)
