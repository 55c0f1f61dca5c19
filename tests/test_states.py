"""docs/states.svg: it is what the model does, and it stands alone."""

import inspect
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import picture
import pytest

from durableq import Queue, Reason, operations

ROOT = Path(__file__).parents[1]
SOURCE = (ROOT / "docs" / "states.svg").read_text()
TAGS = {"svg", "title", "desc", "style", "marker", "rect", "circle", "path", "text", "tspan"}
SVG = "{http://www.w3.org/2000/svg}"

TRANSITIONS = picture.transitions()
STATES = {picture.words(state) for edge in TRANSITIONS for state in edge} - {"nothing"}
OPERATIONS = {verb for verbs in TRANSITIONS.values() for verb in verbs}


@pytest.fixture
def drawing() -> ET.Element:
    return ET.fromstring(SOURCE)


def words(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def drawn(drawing: ET.Element, kind: str) -> list[str]:
    """The texts of this class, in the order of the file."""
    return [
        words(text) for text in drawing.iter(f"{SVG}text") if kind in text.get("class", "").split()
    ]


def test_it_is_a_small_picture_with_a_size(drawing: ET.Element) -> None:
    assert drawing.tag == f"{SVG}svg"
    assert drawing.get("viewBox") == f"0 0 {drawing.get('width')} {drawing.get('height')}"
    assert len(SOURCE.encode()) < 8192


def test_it_is_told_to_whoever_does_not_see_it(drawing: ET.Element) -> None:
    title, desc = drawing.find(f"{SVG}title"), drawing.find(f"{SVG}desc")

    assert words(title)
    assert drawing.get("role") == "img"
    assert drawing.get("aria-labelledby") == title.get("id")
    assert drawing.get("aria-describedby") == desc.get("id")
    for word in STATES | OPERATIONS:
        assert re.search(rf"\b{word}\b", words(desc), re.IGNORECASE), word


def test_it_runs_and_fetches_nothing(drawing: ET.Element) -> None:
    tags = {element.tag.removeprefix(SVG) for element in drawing.iter()}
    names = {name for element in drawing.iter() for name in element.attrib}

    assert tags <= TAGS
    assert not [name for name in names if name.startswith("on") or "href" in name]
    assert SOURCE.count("://") == 1  # the namespace
    assert set(re.findall(r"url\(([^)]*)\)", SOURCE)) == {"#head"}
    assert not re.search(r"@import|@font-face|<!DOCTYPE|<!ENTITY|<\?", SOURCE)


def test_it_names_exactly_the_states(drawing: ET.Element) -> None:
    states = drawn(drawing, "state")

    assert len(states) == len(STATES)
    assert set(states) == STATES


@pytest.mark.parametrize("state", sorted(STATES))
def test_a_state_is_called_the_same_elsewhere(state: str) -> None:
    assert re.search(rf"\b{state}\b", (ROOT / "README.md").read_text())
    assert state.replace(" ", "_") in [*Reason]


def test_it_is_what_the_model_does() -> None:
    assert picture.drawn(TRANSITIONS) == SOURCE, "make states"
    assert TRANSITIONS.keys() == picture.COURSES.keys()


def test_every_operation_that_changes_where_a_job_is_has_an_arrow(drawing: ET.Element) -> None:
    arrows = [path for path in drawing.iter(f"{SVG}path") if path.get("class") == "arrow"]
    names = {name for label in drawn(drawing, "op") for name in label.split(", ")}
    made = {
        name
        for name, value in inspect.getmembers(operations, inspect.isfunction)
        if value.__module__ == operations.__name__ and not name.startswith("_")
    }

    assert len(arrows) == len(TRANSITIONS)
    assert names == OPERATIONS == made | {"purge", "purge_failed"}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_is_a_method_of_the_queue(name: str) -> None:
    assert inspect.isfunction(getattr(Queue, name, None))
