"""Delivery by itself: what it sends, and what it makes of replies and errors."""

import os
from typing import Any

import pytest
import redis

from durableq import (
    InvalidName,
    OutcomeUnknown,
    QueueCorrupt,
    RequestRefused,
    ServerRefused,
    ServerUnavailable,
)
from durableq import policy as policies
from durableq.delivery import MAX_RELOADS, MAX_WINDOW, Call, Delivery
from durableq.requests import Lanes, request_of
from durableq.scripts import script


def call(**settings: Any) -> Call:
    return Call(script("ack"), (b"k",), (b"a", b"1", b""), **settings)


def delivery(*calls: Call, request: str | None = None, lanes: Lanes | None = None) -> Delivery:
    return Delivery("q", calls, lanes or Lanes(), request)


def error(text: str) -> redis.ResponseError:
    return redis.ResponseError(text)


def header(command: tuple[Any, ...]) -> tuple[Any, ...]:
    seat, number, after, fingerprint, count = command[4:9]
    return seat, int(number), after, fingerprint, int(count)


def test_a_lone_call_is_not_chained() -> None:
    lane, number, after, fingerprint, count = header(delivery(call()).commands()[0])

    assert (number, after, count) == (1, "", 1)
    assert lane.endswith("/0")
    assert int(fingerprint, 16)


def test_calls_sent_together_are_chained_and_have_lanes_of_their_own() -> None:
    first, second, third = (header(c) for c in delivery(call(), call(), call()).commands())

    assert len({first[0], second[0], third[0]}) == 3
    assert first[2] == "-"
    assert second[2] == f"{first[0]} {first[1]}"
    assert third[2] == f"{second[0]} {second[1]}"


def test_an_answered_lane_is_used_again_at_the_next_number() -> None:
    lanes = Lanes()
    first = delivery(call(), lanes=lanes)
    lane, number = header(first.commands()[0])[:2]
    first.received([[b"ok"]])

    assert header(delivery(call(), lanes=lanes).commands()[0])[:2] == (lane, number + 1)


def test_a_lane_whose_call_is_unanswered_is_not_used_again() -> None:
    lanes = Lanes()
    lost = delivery(call(), lanes=lanes)

    assert header(delivery(call(), lanes=lanes).commands()[0])[0] != header(lost.commands()[0])[0]


def test_a_forked_process_has_lanes_of_its_own() -> None:
    lanes = Lanes()
    lanes.answered(lanes.next())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, lanes.next().lane.encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 100).decode()
    os.close(read)
    os.close(write)

    assert theirs.split(".")[0] != lanes.next().lane.split(".")[0]


def test_an_unanswered_call_is_sent_again_as_it_was() -> None:
    made = delivery(call())
    made.trouble(redis.ConnectionError("gone"), sent=True, patient=True)
    before = made.commands()

    pause = made.trouble(redis.ConnectionError("gone"), sent=True, patient=True)

    assert 0 < pause <= 0.5
    assert made.commands() == before


def test_what_was_answered_is_not_sent_again() -> None:
    made = delivery(call(), call(), call())
    second = made.commands()[1]

    assert made.received([[b"ok"], error("NOSCRIPT x"), error("OUTOFORDER x")]) == 0
    load, again, _ = made.commands()
    assert load == ("SCRIPT", "LOAD", script("ack").text)
    assert again == second
    made.received([b"sha", [b"ok"], [b"unknown"]])
    assert made.done
    assert made.replies == [[b"ok"], [b"ok"], [b"unknown"]]


def test_scripts_are_not_loaded_for_ever() -> None:
    made = delivery(call())
    for _ in range(MAX_RELOADS):
        assert made.received([b"sha"] * (len(made.commands()) - 1) + [error("NOSCRIPT x")]) == 0

    with pytest.raises(ServerRefused):
        made.received([b"sha", error("NOSCRIPT x")])


def test_a_window_ends_behind_a_call_that_is_the_last() -> None:
    made = delivery(call(), call(last=True), call())

    assert len(made.commands()) == 2
    made.received([[b"ok"], [b"ok"]])
    assert len(made.commands()) == 1
    assert not made.done


def test_a_window_has_a_bound_in_calls_and_bytes() -> None:
    assert len(delivery(*(call() for _ in range(100))).commands()) == MAX_WINDOW
    assert len(delivery(*(call(size=3_000_000) for _ in range(9))).commands()) == 1


def test_trouble_before_sending_leaves_the_outcome_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "PATIENCE", -1.0)
    made = delivery(call())
    made.trouble(redis.ConnectionError("gone"), sent=False, patient=True)

    with pytest.raises(ServerUnavailable, match="gone"):
        made.trouble(redis.ConnectionError("gone"), sent=False, patient=True)


@pytest.mark.parametrize(
    "last", [redis.ConnectionError("gone"), redis.TimeoutError("slow"), OSError("odd")]
)
def test_trouble_after_sending_makes_it_unknown(
    monkeypatch: pytest.MonkeyPatch, last: Exception
) -> None:
    monkeypatch.setattr(policies, "PATIENCE", -1.0)
    made = delivery(call())
    lane, number = header(made.commands()[0])[:2]
    made.trouble(last, sent=True, patient=True)

    with pytest.raises(OutcomeUnknown) as caught:
        made.trouble(redis.ConnectionError("refused"), sent=False, patient=True)

    assert caught.value.request == f"{lane}.{number}"
    assert caught.value.request in str(caught.value)
    assert header(delivery(call(), request=caught.value.request).commands()[0])[:2] == (
        lane,
        number,
    )


def test_a_refusal_after_an_unanswered_send_leaves_it_unknown() -> None:
    made = delivery(call())
    made.trouble(redis.ConnectionError("gone"), sent=True, patient=True)

    with pytest.raises(OutcomeUnknown, match="out of memory"):
        made.received([redis.exceptions.OutOfMemoryError("out of memory")])


def test_a_server_never_reached_is_not_waited_for() -> None:
    with pytest.raises(ServerUnavailable, match="refused"):
        delivery(call()).trouble(redis.ConnectionError("refused"), sent=False, patient=False)


@pytest.mark.parametrize("code", ["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"])
def test_a_passing_state_of_the_server_is_waited_for(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = delivery(call())
    assert made.received([error(f"{code} in a moment")]) > 0

    monkeypatch.setattr(made, "_deadline", 0.0)
    with pytest.raises(ServerUnavailable, match="in a moment"):
        made.received([error(f"{code} in a moment")])


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (redis.ReadOnlyError("You can't write against a read only replica."), ServerRefused),
        (redis.exceptions.OutOfMemoryError("command not allowed"), ServerRefused),
        (redis.exceptions.NoPermissionError("this user has no permissions"), ServerRefused),
        (error("MISCONF Errors writing to the AOF file"), ServerRefused),
        (error("NOREPLICAS Not enough good replicas to write."), ServerRefused),
        (error("Error running script (call to f_1): @user_script:9: WRONGTYPE Op"), QueueCorrupt),
        (error("Error running script (call to f_1): -READONLY You can't"), ServerRefused),
        (error("something never heard of"), ServerRefused),
    ],
)
def test_an_error_of_the_server_is_one_of_ours(reply: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="queue 'q'") as caught:
        delivery(call()).received([reply])

    assert caught.value.__cause__ is reply


@pytest.mark.parametrize(
    "token", ["order-17", "a", "x.1", "AAAAAAAAAAAA.0.1", "AAAAAAAAAAAA.0/3.17", "a/b", "A" * 128]
)
def test_a_request_token_is_ours_or_any_name(token: str) -> None:
    assert request_of(token).token in (token, f"{token}/0.1")
    assert request_of(request_of(token).token) == request_of(token)


@pytest.mark.parametrize("token", ["", "a b", "a,b", "x" * 129, "\ud800"])
def test_other_request_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidName, match="request token"):
        request_of(token)
    with pytest.raises(TypeError, match="request token is a str"):
        request_of(token.encode("utf-8", "replace"))


def test_a_resent_call_leaves_a_receipt_even_if_refused() -> None:
    made = delivery(call())
    assert header(made.commands()[0])[2] == ""

    made.trouble(redis.ConnectionError("gone"), sent=True, patient=True)

    assert header(made.commands()[0])[2] == "-"


def test_a_token_brought_along_means_that_it_may_have_run() -> None:
    with pytest.raises(OutcomeUnknown):
        delivery(call(), request="r1").trouble(
            redis.ConnectionError("refused"), sent=False, patient=False
        )


def test_a_lost_predecessor_is_an_error_and_not_sent_for_again() -> None:
    made = delivery(call(), call())
    made.received([[b"ok"], error("NOSCRIPT x")])

    with pytest.raises(RequestRefused):
        made.received([b"sha", error("OUTOFORDER the request before this one has not run")])


def test_what_certainly_did_not_run_gives_its_lane_back() -> None:
    lanes = Lanes()
    made = delivery(call(), lanes=lanes)
    lane, number = header(made.commands()[0])[:2]
    with pytest.raises(ServerRefused):
        made.received([error("OOM command not allowed")])

    assert header(delivery(call(), lanes=lanes).commands()[0])[:2] == (lane, number + 1)
    assert delivery(lanes=lanes).done
    assert header(delivery(call(), lanes=lanes).commands()[0])[0] != lane
