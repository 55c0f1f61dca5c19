import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Backend, Lab

from durableq import BYTES, JSON, TEXT, DecodeError, InvalidPayload, Queue, operations

TEXTS = [
    "",
    "\0",
    "plain",
    "ä€😀",
    "\r\n",
    "1",
    "null",
    " ",
    "a,b c",
    "\ufeff",
    "\u2028",
    "\x7f\x80",
]
RAW = [b"", b"\0", b"\xff\xfe", bytes(range(256)), b"$5\r\n"]
VALUES = [None, True, 0, -1, 2**70, 1.5, "", "ä\0😀", [], {}, [1, [2, {"a": None}]], {"ключ": "ü"}]


class Lines:
    """A codec of a user's own."""

    name = "lines"

    def encode(self, value: list[str]) -> bytes:
        return "\n".join(value).encode()

    def decode(self, data: bytes) -> list[str]:
        return data.decode().split("\n")


@pytest.mark.parametrize(
    ("codec", "payloads"),
    [(None, TEXTS), (TEXT, TEXTS), (BYTES, RAW), (JSON, VALUES), (Lines(), [["a"], ["b", "ä"]])],
    ids=["default", "text", "bytes", "json", "own"],
)
def test_payloads_come_back_as_they_were(lab: Lab, codec: Any, payloads: list[Any]) -> None:
    queue = lab.queue(codec=codec)
    for i, payload in enumerate(payloads):
        assert queue.enqueue(f"j{i}", payload) is True

    for payload in payloads:
        job = queue.reserve()
        assert job.payload == payload
        assert type(job.payload) is type(payload)
        queue.retry(job.id, job.attempt)
    assert [queue.reserve().payload for _ in payloads] == payloads


@pytest.mark.parametrize(
    "options",
    [{"decode_responses": True}, {"protocol": 2}, {"protocol": 3}, {"encoding": "latin-1"}],
    ids=str,
)
def test_how_the_users_client_decodes_makes_no_difference(
    lab: Lab, options: dict[str, Any]
) -> None:
    queue = lab.queue(codec=BYTES, redis=lab.client(**options))
    for i, payload in enumerate(RAW):
        queue.enqueue(f"j{i}", payload)

    assert [queue.reserve().payload for _ in RAW] == RAW
    assert queue.settings().codec == "bytes"
    assert queue.name in queue.queues()


@pytest.fixture(scope="module")
def one(embedded: Backend) -> Any:
    with Queue(redis=embedded.url) as queue:
        yield queue
        queue.destroy()


@given(st.text(max_size=300))
def test_any_text_round_trips(one: Queue[str], text: str) -> None:
    job_id = f"j{abs(hash(text))}"
    fresh = one.execute(operations.enqueue(job_id, text))
    if fresh:
        assert one.reserve().payload == text
        one.cancel(job_id)


@pytest.mark.parametrize("payload", ["\ud800", "a\udfffb"])
@pytest.mark.parametrize("codec", [TEXT, JSON], ids=["text", "json"])
def test_lone_surrogates_are_refused(lab: Lab, codec: Any, payload: str) -> None:
    queue = lab.queue(codec=codec)
    before = lab.dump(queue)

    with pytest.raises(InvalidPayload, match="surrogates not allowed"):
        queue.enqueue("a", payload)

    assert lab.dump(queue) == before


@pytest.mark.parametrize(
    ("codec", "payload"),
    [(TEXT, b"bytes"), (TEXT, None), (TEXT, 1), (BYTES, "text"), (BYTES, 1), (JSON, {1, 2})],
    ids=repr,
)
def test_a_payload_of_the_wrong_type_is_a_type_error(lab: Lab, codec: Any, payload: Any) -> None:
    queue = lab.queue(codec=codec)
    before = lab.dump(queue)

    with pytest.raises(TypeError):
        queue.enqueue("a", payload)

    assert lab.dump(queue) == before


@pytest.mark.parametrize("payload", [float("nan"), float("inf")], ids=repr)
def test_json_without_a_word_for_it_is_refused(lab: Lab, payload: float) -> None:
    queue = lab.queue(codec=JSON)

    with pytest.raises(InvalidPayload, match="'json'"):
        queue.enqueue("a", payload)


def test_a_payload_that_cannot_be_decoded_is_handed_over_raw(lab: Lab) -> None:
    class Broken(Lines):
        def decode(self, data: bytes) -> list[str]:
            raise KeyError("no such version")

    queue = lab.queue(codec=Broken())
    queue.enqueue("a", ["x"])
    queue.enqueue("b", ["y"])

    with pytest.raises(DecodeError) as caught:
        queue.reserve()

    error = caught.value
    assert (error.id, error.attempt, error.data) == ("a", 1, b"x")
    assert isinstance(error.__cause__, KeyError)
    assert queue.retry("a", 1, token=error.token) is True
    outcomes = queue.execute([operations.reserve()] * 3)
    assert [bool(outcome) for outcome in outcomes] == [True, True, False]
    assert [outcome.error.id for outcome in outcomes[:2]] == ["b", "a"]
    assert queue.ack("a", 2) is True


def test_bytes_that_are_not_the_codecs_are_a_decode_error(lab: Lab) -> None:
    writer = lab.queue(codec=BYTES)
    writer.enqueue("a", b"\xff")
    lab.raw.hset(lab.key(writer, "meta"), "codec", "text")
    reader = lab.queue(writer.name)

    with pytest.raises(DecodeError, match="'text'"):
        reader.reserve()


def test_a_codec_that_makes_no_bytes_is_a_type_error(lab: Lab) -> None:
    class Wrong(Lines):
        def encode(self, value: list[str]) -> Any:
            return json.dumps(value)

    queue = lab.queue(codec=Wrong())

    with pytest.raises(TypeError, match="made str, not bytes"):
        queue.enqueue("a", ["x"])
