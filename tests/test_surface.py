"""Queue and AsyncQueue are one: names, signatures, defaults, docstrings."""

import inspect
from typing import Any

import pytest

import durableq
from durableq import AsyncQueue, Queue
from durableq.async_client import AsyncClient
from durableq.client import Client

PAIRS = [(Queue, AsyncQueue), (Client, AsyncClient)]
BOOLS = ("enqueue", "ack", "retry", "fail", "release", "extend", "cancel", "redrive")
BOOLS += ("reschedule", "pause", "resume")
TWINS = {"__aenter__": "__enter__", "__aexit__": "__exit__"}


def members(kind: type) -> dict[str, Any]:
    own = [each for each in reversed(kind.__mro__) if each.__module__.startswith("durableq.")]
    found = {TWINS.get(n, n): value for each in own for n, value in vars(each).items()}
    return {
        name: value
        for name, value in found.items()
        if inspect.isfunction(value) and (not name.startswith("_") or name.startswith("__"))
    }


def shown(value: Any) -> str:
    return (
        str(inspect.signature(value)).replace("Async", "").replace("redis.asyncio.client", "redis")
    )


@pytest.mark.parametrize(("plain", "awaited"), PAIRS)
def test_the_twins_have_the_same_methods(plain: type, awaited: type) -> None:
    assert members(plain).keys() == members(awaited).keys()


@pytest.mark.parametrize(
    ("plain", "awaited", "name"), [(p, a, name) for p, a in PAIRS for name in members(p)]
)
def test_a_method_of_the_twins_is_the_same(plain: type, awaited: type, name: str) -> None:
    one, other = members(plain)[name], members(awaited)[name]

    assert shown(one) == shown(other)
    assert one.__doc__ == other.__doc__
    assert inspect.iscoroutinefunction(other) == (
        name not in ("__init__", "__repr__", "__reduce__", "listener", "hurried")
    )


def test_the_twins_tell_the_same() -> None:
    assert Queue.__doc__ == AsyncQueue.__doc__


@pytest.mark.parametrize("name", [name for name in durableq.__all__ if name[0].isupper()])
def test_what_is_public_is_documented(name: str) -> None:
    value = getattr(durableq, name)
    if inspect.isclass(value):
        assert value.__doc__
        for member, function in members(value).items():
            assert member.startswith("__") or function.__doc__, member


def test_the_bools_are_bools_by_their_annotations() -> None:
    for name in BOOLS:
        assert inspect.signature(getattr(Queue, name)).return_annotation is bool
