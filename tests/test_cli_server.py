"""`durableq server`, as processes: the embedded server by hand."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
import redis
from support import await_true
from users import connect, kill_server, pid_of, runs, starts

from durableq import Queue
from durableq.embedded import Embedded
from durableq.program import find_program


def run(*words: str, code: int = 0, **environment: Any) -> str:
    """Run the command; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "durableq", "server", *words],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {name: str(value) for name, value in environment.items()},
        timeout=30,
    )
    assert done.returncode == code, done.stdout + done.stderr
    run.told = done.stderr
    return done.stdout


def status(code: int = 0, **environment: Any) -> dict[str, Any]:
    return json.loads(run("status", "--json", code=code, **environment))


def test_it_runs_from_start_to_stop_whoever_comes_and_goes(enter, home):
    run("start")
    assert run.told == "", "it was asked for: no warning"
    server = pid_of(home)
    for _ in range(2):
        user = enter()
        user.call("enqueue", "a", "payload")
        user.leave()
        assert pid_of(home) == server
    run("stop")
    assert not runs(home)
    assert not (home / "socket").exists()
    with Queue("shared") as queue:
        assert queue.reserve().payload == "payload"
    assert not runs(home), "it is stopped by its last user again"


def test_a_start_by_hand_outlives_the_servers_death(enter, home):
    run("start")
    kill_server(home)
    assert "the next one's server runs until `durableq server stop`" in run("status", code=3)
    user = enter()
    user.leave()
    assert runs(home)
    assert status()["kept"] is True


def test_a_server_that_a_queue_has_started_can_be_kept(enter, home):
    user = enter()
    server = pid_of(home)
    assert status()["kept"] is False
    run("start")
    run("start")
    user.leave()
    assert pid_of(home) == server
    assert starts(home) == 1


def test_stop_stops_it_under_its_users_and_their_next_call_brings_it_back(enter, home):
    user = enter()
    run("stop")
    assert not runs(home)
    assert user.call("enqueue", "a") is True
    user.leave()
    assert not runs(home)


def test_a_stop_against_users_that_bring_it_back_ends_and_says_so(home):
    code = """
import durableq, sys, threading

queue, end = durableq.Queue("shared"), threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), end.set())).start()
print("ready", flush=True)
while not end.is_set():
    queue.reserve()
queue.close()
"""
    busy = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with busy:
        busy.stdout.readline()
        for _ in range(5):
            server = pid_of(home)
            done = subprocess.run(
                [sys.executable, "-m", "durableq", "server", "stop"],
                check=False,
                capture_output=True,
                text=True,
                timeout=10,
            )
            assert done.returncode in (0, 3), done.stderr
            assert (done.returncode == 3) == ("started it again" in done.stderr)
            await_true(lambda server=server: Embedded(home).status().pid not in (server, None))
            await_true(lambda: Embedded(home).status().state == "running")
        busy.stdin.close()
    assert busy.returncode == 0
    assert not runs(home)


def test_stop_where_nothing_runs_is_no_error_and_makes_nothing(home):
    assert "stopped" in run("stop")
    assert json.loads(run("stop", "--json"))["state"] == "stopped"
    assert not home.exists()


def test_status_starts_and_makes_nothing(home):
    told = run("status", code=3)
    assert told.splitlines()[0].split() == ["state", "stopped"]
    assert not home.exists()
    run("start")
    run("stop")
    before = (home / "log").read_text()
    assert status(code=3)["pid"] is None
    assert (home / "log").read_text() == before


def test_status_says_what_there_is_to_know(enter, home):
    user = enter()
    user.call("enqueue", "a")
    found = status()
    assert found == {
        "state": "running",
        "url": f"unix://{home}/socket",
        "home": str(home),
        "pid": pid_of(home),
        "server": find_program().name,
        "connections": 1,
        "kept": False,
        "data_bytes": sum(path.stat().st_size for path in home.glob("append*/*")),
    }
    told = run("status")
    assert found["url"] in told
    assert "1 connection; it runs until the last one leaves" in told
    run("start")
    assert "it runs until `durableq server stop`" in run("status")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["with spaces", "ümläut 🦀", "a?b#c%41", "long" * 30])
def test_the_url_leads_to_the_server_whatever_its_directory_is_called(enter, short_folder, name):
    home = short_folder / name
    places = {"DURABLEQ_HOME": home, "TMPDIR": short_folder}
    url = json.loads(run("start", "--json", **places))["url"]
    try:
        with redis.Redis.from_url(url) as raw:
            assert raw.ping()
        with Queue("shared", redis=url) as queue:
            assert queue.enqueue("a")
        assert enter(**places).call("reserve")[0] == "a"
    finally:
        run("stop", **places)
    assert not runs(home)


def test_looking_at_a_server_does_not_keep_it(enter, home):
    user = enter()
    looking = redis.Redis(unix_socket_path=str(home / "socket"), client_name="durableq-admin")
    with looking:
        looking.ping()
        user.leave()
        assert not runs(home)


def test_another_client_of_the_server_keeps_it(enter, home):
    user = enter()
    with connect(home) as raw:
        raw.ping()
        user.leave()
        assert runs(home)


def test_a_silent_server_is_not_called_running(enter, home):
    enter()
    server = pid_of(home)
    os.kill(server, signal.SIGSTOP)
    try:
        found = status(code=3)
    finally:
        os.kill(server, signal.SIGCONT)
    assert (found["state"], found["pid"]) == ("silent", server)


def test_where_a_url_is_set_it_says_that_queues_go_elsewhere(home):
    run("status", code=3, DURABLEQ_URL="redis://127.0.0.1:1")
    assert run.told.count("\n") == 1
    assert "DURABLEQ_URL is set" in run.told


@pytest.mark.parametrize("word", ["start", "stop", "status"])
def test_never_forbids_it_in_one_line(home, word):
    run(word, code=3, DURABLEQ_EMBEDDED="never")
    assert run.told.count("\n") == 1
    assert "DURABLEQ_EMBEDDED=never" in run.told


@pytest.mark.parametrize("word", ["Never", "0", "no", "false", "always"])
def test_a_word_that_might_mean_never_is_not_taken_for_nothing(home, word):
    run("start", code=2, DURABLEQ_EMBEDDED=word)
    assert run.told == f"durableq: DURABLEQ_EMBEDDED={word} is not known: it is never, or not set\n"
    assert not home.exists()


@pytest.mark.parametrize("word", ["start", "stop", "status"])
def test_a_directory_that_cannot_be_used_is_told_in_one_line(home, word):
    home.write_text("")
    run(word, code=3)
    assert run.told.count("\n") == 1
    assert str(home) in run.told


def test_a_directory_of_something_else_is_left_alone(home):
    home.mkdir()
    (home / "precious").write_text("mine")
    run("start", code=3)
    assert run("status", code=3).startswith("state  stopped")
    assert [path.name for path in home.iterdir()] == ["precious"]


def test_the_help_tells_the_commands_and_their_exit_codes():
    told = run("--help")
    for word in ("start", "stop", "status", "Exit codes"):
        assert word in told
