"""Promises about the repository itself: the README runs, and the tree keeps its rules."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for kind, text in found if kind == language]


def run(code: str, folder: Path) -> str:
    """Run an example as a newcomer does, on the embedded server; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-"],
        input=code,
        text=True,
        capture_output=True,
        cwd=folder,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1  # the embedded server's one warning
    assert "embedded server" in done.stderr
    return done.stdout


def test_the_readmes_examples_run_as_printed(tmp_path: Path) -> None:
    first, asynchronous, failing, looking, many = blocks("python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 15

    assert run(first, tmp_path) == "sending to ada@example.org\nFalse\n"
    assert run(first, tmp_path) == "False\n"
    assert run(asynchronous, tmp_path) == "True\n"
    for _ in range(2):
        assert run(failing, tmp_path) == "welcome-19 rejected no such mailbox\n"
    assert run(looking, tmp_path) == "['urgent', 'usual']\n2 2\nwaiting 2\n"
    assert run(many, tmp_path) == "1000\n990 11\n"


def test_the_readmes_job_for_the_container_is_one(tmp_path: Path) -> None:
    (code,) = re.findall(r"python -c '([^']+)'", README)
    assert run(code, tmp_path) == "True\n"


def test_the_readmes_scenario_answers_as_printed() -> None:
    command = next(block for block in blocks("sh") if "durableq scenario" in block)
    answer = blocks("")[0]

    done = subprocess.run(
        ["sh", "-c", command],
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )

    assert done.stdout == answer, done.stderr


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)\)", README))
def test_what_the_readme_links_to_is_there(target: str) -> None:
    assert (ROOT / target).exists()


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)))
)
def test_a_make_target_of_the_readme_is_there(command: str) -> None:
    assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_extras_of_the_readme_are_there() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    found = re.findall(r"'\.\[([a-z,]+)\]'", README)
    assert found
    for extras in found:
        for extra in extras.split(","):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE)


def test_modules_and_scripts_are_of_a_size_to_read() -> None:
    for path in (ROOT / "durableq").rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 300, path
    for path in (ROOT / "lua").rglob("*.lua"):
        assert len(path.read_text().splitlines()) <= 60, path


def test_every_module_says_what_lives_in_it() -> None:
    for path in (ROOT / "durableq").rglob("*.py"):
        assert path.read_text().startswith('"""'), path


def test_everything_to_develop_with_is_locked_within_its_range() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert not [line for line in lines if "://" in line or "@" in line]
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    locked = {canonicalize_name(pin.name): str(pin.specifier) for pin in pins}
    assert len(locked) == len(pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [Requirement(text) for text in sum(extras, project["dependencies"])]
    for need in [need for need in wanted if need.name != project["name"]]:
        pin = locked[canonicalize_name(need.name)]
        assert pin.startswith("=="), need
        assert need.specifier.contains(pin.removeprefix("==")), f"{need}: make lock"


def test_the_commands_of_the_readme_are_there() -> None:
    help = subprocess.run(
        [sys.executable, "-m", "durableq", "server", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    used = set(re.findall(r"durableq\s+server\s+(\w+)", README))
    assert used == {"start", "stop", "status"}
    assert all(word in help for word in used)


@pytest.mark.parametrize("name", re.findall(r"`(DURABLEQ_\w+)", README))
def test_a_variable_of_the_readme_is_read_somewhere(name: str) -> None:
    assert any(f'"{name}"' in path.read_text() for path in (ROOT / "durableq").rglob("*.py"))
