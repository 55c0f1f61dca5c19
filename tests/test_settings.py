import copy
import enum
import pickle
import re
from typing import Any

import pytest
from support import Lab

from durableq import (
    BYTES,
    JSON,
    InvalidArgument,
    InvalidName,
    QueueNotFound,
    Settings,
    SettingsMismatch,
    queues,
)


def test_a_new_queue_is_unbounded_text(lab: Lab) -> None:
    assert lab.queue().settings() == Settings(capacity=None, codec="text")


def test_without_a_name_each_queue_is_a_fresh_one(lab: Lab) -> None:
    assert len({lab.queue().name for _ in range(20)}) == 20


def test_what_is_left_out_is_adopted(lab: Lab) -> None:
    lab.queue("adopted", capacity=1, codec=JSON)

    queue = lab.queue("adopted")

    assert queue.settings() == Settings(capacity=1, codec="json")
    assert queue.enqueue("a", [1]) is True
    assert queue.enqueue("b", [2]) is False
    assert queue.reserve().payload == [1]


@pytest.mark.parametrize(("stored", "given"), [(1, 2), (None, 2), (1, None), (0, None)])
def test_a_capacity_that_differs_is_an_error_that_names_both(
    lab: Lab, stored: int | None, given: int | None
) -> None:
    queue = lab.queue("differs", capacity=stored)
    before = lab.dump(queue)

    with pytest.raises(SettingsMismatch, match=rf"capacity {stored}\b.*, not {given}\b"):
        lab.queue("differs", capacity=given)

    assert lab.dump(queue) == before
    assert lab.queue("differs", capacity=stored).settings().capacity == stored


def test_a_codec_that_differs_is_an_error_that_names_both(lab: Lab) -> None:
    lab.queue("codec", codec=JSON)

    with pytest.raises(SettingsMismatch, match="'json', not 'bytes'"):
        lab.queue("codec", codec=BYTES)


def test_a_codec_of_ones_own_must_be_given_again(lab: Lab) -> None:
    class Own:
        name = "own"
        encode = staticmethod(str.encode)
        decode = staticmethod(bytes.decode)

    lab.queue("own-codec", codec=Own())

    with pytest.raises(SettingsMismatch, match="codec 'own', which is not built in"):
        lab.queue("own-codec")
    assert lab.queue("own-codec", codec=Own()).enqueue("a", "x") is True


def test_configure_is_obeyed_by_others_at_once(lab: Lab) -> None:
    one, other = lab.queue("configured", capacity=1), lab.queue("configured")
    one.enqueue("a")
    assert other.enqueue("b") is False

    assert one.configure(capacity=2) is None
    assert other.enqueue("b") is True
    one.configure(capacity=None)
    assert other.enqueue("c") is True
    assert other.settings().capacity is None


def test_a_smaller_capacity_only_refuses_new_jobs(lab: Lab) -> None:
    queue = lab.queue(capacity=3)
    for id in "abc":
        queue.enqueue(id)

    queue.configure(capacity=1)

    assert queue.enqueue("d") is False
    assert [queue.reserve().id for _ in range(3)] == ["a", "b", "c"]
    assert queue.retry("a", 1) is True
    assert queue.ack("b", 1) is True
    assert queue.enqueue("d") is False
    queue.ack("c", 1)
    queue.cancel("a")
    assert queue.enqueue("d") is True
    assert queue.enqueue("e") is False


@pytest.mark.parametrize("capacity", [-1, 2**53 + 1, -(10**5000)], ids=["-1", "large", "huge"])
def test_a_capacity_out_of_range_is_refused(lab: Lab, capacity: int) -> None:
    with pytest.raises(InvalidArgument, match="0 to 2\\*\\*53, or None"):
        lab.queue(capacity=capacity)
    with pytest.raises(InvalidArgument, match="0 to 2\\*\\*53, or None"):
        lab.queue().configure(capacity=capacity)


@pytest.mark.parametrize("capacity", ["1", 1.0, True, [1]])
def test_a_capacity_of_the_wrong_type_is_a_type_error(lab: Lab, capacity: Any) -> None:
    with pytest.raises(TypeError, match="capacity is an int or None"):
        lab.queue(capacity=capacity)
    with pytest.raises(TypeError, match="capacity is an int or None"):
        lab.queue().configure(capacity=capacity)


@pytest.mark.parametrize("name", ["", "a b", "{a}", "}a", "ä", "x" * 129, "a\n"])
def test_a_name_or_prefix_outside_the_rule_is_refused(lab: Lab, name: str) -> None:
    with pytest.raises(InvalidName, match="queue name"):
        lab.queue(name)
    with pytest.raises(InvalidName, match="prefix"):
        lab.queue(prefix=name)


def test_names_and_prefixes_of_the_wrong_type_are_type_errors(lab: Lab) -> None:
    for name in (b"a", 1, True):
        with pytest.raises(TypeError, match="queue name is a str"):
            lab.queue(name)
        with pytest.raises(TypeError, match="prefix is a str"):
            lab.queue(prefix=name)
    with pytest.raises(TypeError, match="a codec, such as durableq"):
        lab.queue(codec="json")
    for client in (1, b"redis://", object()):
        with pytest.raises(TypeError, match="redis= takes a"):
            lab.queue(redis=client)


def test_queues_of_one_name_under_two_prefixes_share_nothing(lab: Lab) -> None:
    one, other = lab.queue("name", prefix="p1"), lab.queue("name", prefix="p2")
    one.enqueue("a")

    assert other.reserve() is None
    assert one.queues() == ["name"]


def test_queues_lists_the_living(lab: Lab) -> None:
    made = [lab.queue(name, prefix="listed") for name in ("b", "a", "A")]

    assert made[0].queues() == ["A", "a", "b"]
    made[1].destroy()
    assert made[0].queues() == ["A", "b"]
    if not lab.asynchronous:
        assert queues(lab.backend.client(), prefix="listed") == ["A", "b"]


def test_a_name_that_the_registry_only_hints_at_is_not_listed(lab: Lab) -> None:
    queue = lab.queue("real", prefix="hinted")
    lab.raw.sadd("hinted:queues", "never-made")

    assert queue.queues() == ["real"]


def test_destroy_leaves_no_key(lab: Lab) -> None:
    queue = lab.queue("doomed", prefix="gone", capacity=9)
    for id in "abc":
        queue.enqueue(id, id)
    queue.reserve()
    queue.retry("a", 1, error="e")
    queue.cancel("b")
    queue.ack("c", queue.reserve().attempt)

    assert queue.destroy() is None
    queue.destroy()

    assert lab.raw.keys("gone:*") == []


def test_a_destroyed_queue_is_not_found_until_it_is_made_again(lab: Lab) -> None:
    queue = lab.queue("again", capacity=1)
    queue.enqueue("a")
    queue.destroy()
    calls = [
        lambda: queue.enqueue("b"),
        queue.reserve,
        lambda: queue.ack("a", 1),
        lambda: queue.retry("a", 1),
        lambda: queue.cancel("a"),
        lambda: queue.configure(capacity=1),
        queue.settings,
    ]
    for call in calls:
        with pytest.raises(QueueNotFound, match="'again'"):
            call()
    assert lab.dump(queue) == {}

    anew = lab.queue("again")
    assert anew.settings().capacity is None
    assert anew.enqueue("a") is True  # a new lifetime
    assert queue.enqueue("a") is False


def test_a_closed_queue_says_so(lab: Lab) -> None:
    queue = lab.queue()
    queue.destroy()
    queue.close()
    queue.close()

    with pytest.raises(RuntimeError, match="closed"):
        queue.enqueue("a")


def test_the_users_client_is_left_alone(lab: Lab) -> None:
    client = lab.client()
    pool = client.connection_pool
    before = dict(pool.connection_kwargs)
    queue = lab.queue(redis=client)
    queue.enqueue("a")
    queue.destroy()
    queue.close()

    assert client.connection_pool is pool
    assert {k: v for k, v in pool.connection_kwargs.items() if k in before} == before


def test_settings_without_their_queue_are_an_error_not_a_new_queue(lab: Lab) -> None:
    queue = lab.queue("evicted")
    queue.enqueue("a")
    lab.raw.delete(lab.key(queue, "meta"))

    with pytest.raises(Exception, match=re.escape("settings of this queue are gone")):
        lab.queue("evicted")


def test_a_name_of_a_text_enum_is_its_text(lab: Lab) -> None:
    class Names(str, enum.Enum):  # noqa: UP042 - whose format() gives another text
        EMAILS = "emails-enum"
        PREFIX = "prefix-enum"
        TOKEN = "token"

    one = lab.queue(Names.EMAILS, prefix=Names.PREFIX)
    other = lab.queue("emails-enum", prefix="prefix-enum")
    assert one.enqueue(Names.EMAILS, request=Names.TOKEN) is True

    assert other.enqueue("emails-enum", request="token") is True
    assert other.reserve().id == "emails-enum"
    assert one.queues() == ["emails-enum"]


@pytest.mark.parametrize("name", ["", "a b", "\ud800"])
def test_a_codecs_name_obeys_the_rule_for_names(lab: Lab, name: str) -> None:
    class Own:
        encode = staticmethod(str.encode)
        decode = staticmethod(bytes.decode)

    codec = Own()
    codec.name = name

    with pytest.raises(InvalidName, match="codec name"):
        lab.queue("bad-codec", codec=codec)
    assert lab.queue("bad-codec").settings().codec == "text"


def test_a_queue_is_not_sent_to_another_process(lab: Lab) -> None:
    queue = lab.queue("stays")
    queue = getattr(queue, "queue", queue)

    with pytest.raises(TypeError, match=r"make one there, (Async)?Queue"):
        pickle.dumps(queue)
    with pytest.raises(TypeError, match=r"make one there, (Async)?Queue"):
        copy.deepcopy(queue)
