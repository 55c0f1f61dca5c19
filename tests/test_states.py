"""docs/states.svg: it stands alone, and it names what there is."""

import inspect
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from durableq import Queue, Reason, operations

ROOT = Path(__file__).parents[1]
SOURCE = (ROOT / "docs" / "states.svg").read_text()
TAGS = {"svg", "title", "desc", "style", "marker", "rect", "circle", "path", "text", "tspan"}
SVG = "{http://www.w3.org/2000/svg}"

STATES = {"waiting", "in flight", "finished", "cancelled", "failed"}
OPERATIONS = {
    name
    for name, value in inspect.getmembers(operations, inspect.isfunction)
    if value.__module__ == operations.__name__ and not name.startswith("_")
}


@pytest.fixture
def picture() -> ET.Element:
    return ET.fromstring(SOURCE)


def words(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def drawn(picture: ET.Element, kind: str) -> list[str]:
    """The texts of this class, in the order of the file."""
    return [
        words(text) for text in picture.iter(f"{SVG}text") if kind in text.get("class", "").split()
    ]


def test_it_is_a_small_picture_with_a_size(picture: ET.Element) -> None:
    assert picture.tag == f"{SVG}svg"
    assert picture.get("viewBox") == f"0 0 {picture.get('width')} {picture.get('height')}"
    assert len(SOURCE.encode()) < 8192


def test_it_is_told_to_whoever_does_not_see_it(picture: ET.Element) -> None:
    title, desc = picture.find(f"{SVG}title"), picture.find(f"{SVG}desc")

    assert words(title)
    assert picture.get("role") == "img"
    assert picture.get("aria-labelledby") == title.get("id")
    assert picture.get("aria-describedby") == desc.get("id")
    for word in STATES | OPERATIONS:
        assert re.search(rf"\b{word}\b", words(desc), re.IGNORECASE), word


def test_it_runs_and_fetches_nothing(picture: ET.Element) -> None:
    tags = {element.tag.removeprefix(SVG) for element in picture.iter()}
    names = {name for element in picture.iter() for name in element.attrib}

    assert tags <= TAGS
    assert not [name for name in names if name.startswith("on") or "href" in name]
    assert SOURCE.count("://") == 1  # the namespace
    assert set(re.findall(r"url\(([^)]*)\)", SOURCE)) == {"#head"}
    assert not re.search(r"@import|@font-face|<!DOCTYPE|<!ENTITY|<\?", SOURCE)


def test_it_names_exactly_the_states(picture: ET.Element) -> None:
    states = drawn(picture, "state")

    assert len(states) == len(STATES)
    assert set(states) == STATES


@pytest.mark.parametrize("state", sorted(STATES))
def test_a_state_is_called_the_same_elsewhere(state: str) -> None:
    assert re.search(rf"\b{state}\b", (ROOT / "README.md").read_text())
    assert state in [*Reason, "in flight"]  # in flight is no reason to refuse


def test_it_names_exactly_the_operations(picture: ET.Element) -> None:
    arrows = [path for path in picture.iter(f"{SVG}path") if path.get("class") == "arrow"]
    names = drawn(picture, "op")

    assert len(names) == len(arrows)
    assert set(names) == OPERATIONS
    assert [name for name in OPERATIONS if names.count(name) > 1] == ["cancel"]


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_is_a_method_of_the_queue(name: str) -> None:
    assert inspect.isfunction(getattr(Queue, name, None))
