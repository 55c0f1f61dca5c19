"""Promises about the repository itself: the README runs, and the tree keeps its rules."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for kind, text in found if kind == language]


def test_the_readmes_example_runs_as_printed(tmp_path: Path) -> None:
    code = blocks("python")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15

    done = subprocess.run(
        [sys.executable, "-"],
        input=code,
        text=True,
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )

    assert done.stdout == "sending to ada@example.org\nFalse\n", done.stderr
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1  # the embedded server's one warning
    assert "embedded server" in done.stderr


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


@pytest.mark.parametrize("command", re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
def test_a_make_target_of_the_readme_is_there(command: str) -> None:
    assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_extras_of_the_readme_are_there() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for extras in re.findall(r"durableq\[([a-z,]+)\]", README):
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
