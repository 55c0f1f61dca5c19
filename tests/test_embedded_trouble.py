"""The embedded server in trouble: killed again and again, out of disk, found with others' data."""

import contextlib
import fcntl
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import await_true
from users import KINDS, connect, end_servers, pid_of, program, runs, starts

from durableq import BYTES, EmbeddedServerError, Queue, launch
from durableq import home as homes
from durableq.embedded import Embedded
from durableq.home import Home
from durableq.program import find_program

KILLS = 50

WRITER = """
import asyncio, inspect, sys, threading
import durableq

def call(function, *args, **kwargs):
    answer = function(*args, **kwargs)
    return loop.run_until_complete(answer) if inspect.iscoroutine(answer) else answer

def say(*words):
    print(*words, flush=True)

loop = asyncio.new_event_loop()
kind, me = sys.argv[1:]
queue = getattr(durableq, kind)("shared")
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set())).start()
i = 0
while not stop.is_set():
    i += 1
    if call(queue.enqueue, f"{me}-{i}", f"payload of {me}-{i}"):
        say("accepted", f"{me}-{i}")
    if i % 3:
        job = call(queue.reserve)
        say("reserved", job.id, job.attempt, job.payload == f"payload of {job.id}")
        if i % 3 == 1:
            if call(queue.ack, job.id, job.attempt, token=job.token):
                say("acked", job.id)
        elif call(queue.retry, job.id, job.attempt, token=job.token):
            say("retried", job.id)
call(queue.close)
"""


@pytest.mark.slow
def test_fifty_kills_under_four_writers_lose_and_double_nothing(home, short_folder):
    writers, ledgers = [], [short_folder / f"ledger-{i}" for i in range(4)]
    for i, ledger in enumerate(ledgers):
        with open(ledger, "w") as output:
            words = [sys.executable, "-c", WRITER, KINDS[i % 2], f"w{i}"]
            writers.append(
                subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE, text=True
                )
            )
    chance, log, killed = random.Random(3), home / "log", None
    try:
        for kills in range(KILLS):
            # At some moment of its work: after so many more answers.
            enough = size(ledgers) + chance.randrange(1, 4000)
            await_true(lambda enough=enough: size(ledgers) > enough)
            assert all(writer.poll() is None for writer in writers), kills
            await_true(lambda killed=killed: Embedded(home).home.pid not in (killed, None))
            killed = Embedded(home).home.pid
            os.kill(killed, signal.SIGKILL)
        end = size(ledgers) + 1000
        await_true(lambda: size(ledgers) > end)
        told = [writer.communicate(timeout=30)[1] for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert [writer.returncode for writer in writers] == [0] * 4, told
    assert log.read_text().count("Ready to accept connections") >= KILLS

    lines = [line.split() for ledger in ledgers for line in ledger.read_text().splitlines()]
    said = {word: [line[1] for line in lines if line[0] == word] for word in SAID}
    assert len(said["accepted"]) > KILLS
    assert len(set(said["accepted"])) == len(said["accepted"])
    reserved = Counter((line[1], line[2]) for line in lines if line[0] == "reserved")
    assert set(reserved.values()) == {1}, "no attempt was handed out twice"
    assert {line[3] for line in lines if line[0] == "reserved"} == {"True"}
    assert max(Counter(said["acked"]).values()) == 1
    assert {id for id, _ in reserved} <= set(said["accepted"])

    left = set(said["accepted"]) - set(said["acked"])
    with Queue("shared") as queue:
        while job := queue.reserve():
            left.remove(job.id)
            attempts = [int(attempt) for id, attempt in reserved if id == job.id]
            assert job.attempt == max(attempts, default=0) + 1
            assert queue.ack(job.id, job.attempt)
        assert left == set(), "accepted, never finished, and gone"
        assert not any(queue.enqueue(id) for id in said["acked"]), "finished, and forgotten"
    assert not runs(home)


SAID = ("accepted", "reserved", "acked", "retried")


def size(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)


# Its disk


@pytest.fixture
def small_disk(short_folder: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = short_folder / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=24m", "durableq-test", str(folder)]
    able = os.getuid() == 0 and shutil.which("mount")
    if not able or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    end_servers(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)


PAYLOAD = bytes(1_000_000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_fills_up_is_told_and_with_room_again_the_queue_goes_on(
    enter, small_disk, kind
):
    filler, home = small_disk / "filler", small_disk / "home"
    filler.write_bytes(bytes(12_000_000))
    user = enter(kind, DURABLEQ_HOME=home)
    accepted = 0
    answer = True
    while answer is True:
        answer = user.call("enqueue", f"job-{accepted}", "x" * 1_000_000)
        accepted += answer is True
    assert 0 < accepted < 14
    error = answer["error"]
    assert "No space left on device" in error
    assert str(home) in error
    assert not runs(home)
    for name, *args in (("reserve",), ("enqueue", "b", "small")):
        told = user.call(name, *args)["error"]
        assert "No space left on device" in told
        assert "8 MiB must be free" in told
        assert "request" not in told, "nothing was sent: no doubt about what happened"
    filler.unlink()
    assert user.call("enqueue", "b", "small") is True
    for i in range(accepted):
        assert user.call("reserve")[0] == f"job-{i}"
    last = user.call("reserve")[0]
    if last == f"job-{accepted}":  # that one's answer was lost: it may have been accepted
        last = user.call("reserve")[0]
    assert last == "b"
    assert user.call("reserve") is None


def test_a_server_is_not_started_where_it_could_not_write(small_disk, monkeypatch):
    monkeypatch.setenv("DURABLEQ_HOME", str(small_disk / "home"))
    (small_disk / "filler").write_bytes(bytes(20_000_000))
    with pytest.raises(EmbeddedServerError, match=r"No space left.*8 MiB must be free"):
        Queue("shared")
    assert not runs(small_disk / "home")
    assert not (small_disk / "home" / "room").exists()


def test_the_file_of_changes_is_rewritten_as_it_grows_and_the_queue_goes_on(home, monkeypatch):
    biggest = 0
    with Queue("shared", codec=BYTES) as queue, connect(home) as raw:
        server = queue.client._endpoint.embedded
        for i in range(320):
            assert queue.enqueue(f"job-{i}", PAYLOAD)
            job = queue.reserve()
            assert queue.ack(job.id, job.attempt)
            biggest = max(biggest, server.home.data_bytes())
        await_true(lambda: not raw.info("persistence")["aof_rewrite_in_progress"])
        assert raw.info("persistence")["aof_rewrites"] >= 2
        assert server.home.data_bytes() < 80_000_000
    # 320 MB were written. The server rewrites at 64 MiB; what comes meanwhile is added to that.
    assert biggest < 200_000_000


def test_the_log_does_not_grow_for_ever(home, monkeypatch):
    monkeypatch.setattr(homes, "LOG_LIMIT", 1000)
    log, earlier = home / "log", home / "log.1"
    for _ in range(3):
        Queue("shared").close()
        first = log.read_text().splitlines()[0]
    assert first not in earlier.read_text()
    assert len(earlier.read_text()) < 5000
    assert sorted(home.glob("log*")) == [log, earlier]


# Its data


def test_data_of_a_newer_server_is_told_with_both_names(
    home, monkeypatch, fresh_lookup, redis_program
):
    newer = find_program()
    with Queue("shared") as queue:
        assert queue.enqueue("a", "payload")
    monkeypatch.setenv("DURABLEQ_SERVER", redis_program)
    find_program.cache_clear()
    with pytest.raises(EmbeddedServerError) as caught:
        Queue("shared")
    told = str(caught.value)
    assert f"was written by {newer.name}, and Redis 7." in told
    assert redis_program in told
    assert "install durableq[embedded], set DURABLEQ_SERVER" in told
    monkeypatch.delenv("DURABLEQ_SERVER")
    find_program.cache_clear()
    with Queue("shared") as queue:
        assert queue.reserve().id == "a"


def test_data_of_an_older_server_is_taken_over(home, monkeypatch, fresh_lookup, redis_program):
    monkeypatch.setenv("DURABLEQ_SERVER", redis_program)
    with Queue("shared") as queue:
        assert queue.enqueue("a", "payload")
    assert (home / "server").read_text().startswith("Redis 7.")
    monkeypatch.delenv("DURABLEQ_SERVER")
    find_program.cache_clear()
    with Queue("shared") as queue:
        assert queue.reserve().id == "a"
    assert (home / "server").read_text() == f"{find_program().name}\n"


def test_a_server_that_would_overlook_the_data_is_not_started(
    home, monkeypatch, fresh_lookup, short_folder
):
    with Queue("shared") as queue:
        assert queue.enqueue("a", "payload")
    find_program.cache_clear()
    path = program(short_folder / "old", "Redis server v=6.2.14 sha=0", otherwise="touch started")
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    with pytest.raises(EmbeddedServerError, match=r"cannot read it.*DURABLEQ_HOME") as caught:
        Queue("shared")
    assert f"Redis 6.2.14 ({path})" in str(caught.value)
    assert not (home / "started").exists()


@pytest.mark.parametrize("writer", ["the same", "Valkey 8.1.0"])
def test_data_that_is_damaged_is_told_with_the_servers_words_and_left_as_it_is(home, writer):
    with Queue("shared") as queue:
        assert queue.enqueue("a", "payload")
    if writer != "the same":  # an upgrade is not to blame
        (home / "server").write_text(writer)
    (changes,) = home.glob("appendonlydir/*.incr.aof")
    damaged = b"*nonsense\r\n" + changes.read_bytes()
    changes.write_bytes(damaged)
    with pytest.raises(EmbeddedServerError, match=r"ends at its start.*log") as caught:
        Queue("shared")
    assert "ad file format" in str(caught.value)
    assert changes.read_bytes() == damaged


# Its start


def counting(path: Path) -> str:
    """Shell words that count their runs in `path`, and name the number and the real program."""
    real = find_program().path
    find_program.cache_clear()
    return f'echo started >> {path}; n=$(wc -l < {path}); real="{real}"; '


@pytest.mark.parametrize("last", ["Ready to accept connections unix", "ready to exit, bye bye..."])
def test_servers_that_others_stop_as_they_start_or_are_up_are_no_failures(
    home, monkeypatch, fresh_lookup, short_folder, last
):
    count = counting(short_folder / "count")
    says = f'echo "* {last}" >> {home}/log'
    otherwise = f'{count} if [ $n -lt 12 ]; then {says}; exit 0; fi; exec "$real" "$@"'
    path = program(short_folder / "server", "Redis server v=7.0.0", otherwise=otherwise)
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    with Queue("shared") as queue:
        assert queue.enqueue("a")
    assert len((short_folder / "count").read_text().split()) == 12


def test_a_server_that_comes_up_and_ends_each_time_is_given_up(
    home, monkeypatch, fresh_lookup, short_folder
):
    count = counting(short_folder / "count")
    up = f'echo "* Ready to accept connections unix" >> {home}/log'
    path = program(short_folder / "server", "Redis server v=7.0.0", otherwise=f"{count} {up}")
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    with pytest.raises(EmbeddedServerError, match="ends at its start"):
        Queue("shared")
    assert len((short_folder / "count").read_text().split()) == launch.MOST_ENDS


def test_a_stop_finds_the_server_that_starts_after_one_that_was_killed(
    home, monkeypatch, fresh_lookup, short_folder
):
    Queue("shared").close()
    (home / "pid").write_text("1")  # as a killed server leaves it
    go = short_folder / "go"
    slow = f'while [ ! -e {go} ]; do :; done; exec "{find_program().path}" "$@"'
    find_program.cache_clear()
    path = program(short_folder / "server", "Redis server v=7.0.0", otherwise=slow)
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    server, given_up = Embedded(home), threading.Event()
    starting = threading.Thread(target=lambda: suppressed(server.ready, given_up))
    starting.start()
    await_true(lambda: runs(home) and Home(home).pid is None)
    given_up.set()
    starting.join()
    stopping = threading.Thread(target=Embedded(home).stop)
    stopping.start()
    go.touch()
    stopping.join(20)
    assert not runs(home)


def suppressed(function, *args) -> None:
    with contextlib.suppress(EmbeddedServerError):
        function(*args)


@pytest.mark.parametrize(("ends", "works"), [(launch.MOST_STARTS - 1, True), (99, False)])
def test_a_server_that_ends_at_its_start_is_started_again_a_few_times(
    home, monkeypatch, fresh_lookup, short_folder, ends, works
):
    count = counting(short_folder / "count")
    otherwise = f'{count} if [ $n -le {ends} ]; then exit 1; fi; exec "$real" "$@"'
    path = program(short_folder / "server", "Redis server v=7.0.0", otherwise=otherwise)
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    if works:
        with Queue("shared") as queue:
            assert queue.enqueue("a")
    else:
        with pytest.raises(EmbeddedServerError, match="ends at its start"):
            Queue("shared")
        assert len((short_folder / "count").read_text().split()) == launch.MOST_STARTS


def test_a_locale_that_is_not_installed_does_not_end_it(
    home, monkeypatch, fresh_lookup, short_folder
):
    refuse = 'if [ "$LC_ALL" != C ]; then echo locale >&2; exit 1; fi'
    otherwise = f'{refuse}; exec "{find_program().path}" "$@"'
    find_program.cache_clear()
    path = program(short_folder / "server", "Redis server v=7.0.0", otherwise=otherwise)
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    with Queue("shared") as queue:
        assert queue.enqueue("a")


def test_a_system_without_a_shell_is_told(home, monkeypatch):
    def run(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/bin/sh")

    find_program()
    monkeypatch.setattr(launch.subprocess, "run", run)
    with pytest.raises(EmbeddedServerError, match=r"/bin/sh.*DURABLEQ_URL"):
        Queue("shared")


def test_a_lock_that_something_else_holds_is_told_with_its_path(home, monkeypatch):
    monkeypatch.setattr(launch, "SILENCE", 0.1)
    home.mkdir(mode=0o700)
    lock = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedServerError, match=r"is held.*DURABLEQ_HOME") as caught:
            Queue("shared")
    finally:
        os.close(lock)
    assert f"the lock of {home} is held" in str(caught.value)
    with Queue("shared") as queue:
        assert queue.enqueue("a"), "the lock was let go: its file is no obstacle"


class Loading:
    """Something that has the lock and answers that it loads, until it is told to answer PONG."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700)
        self.pings, self.loaded = 0, False
        self.lock = os.open(home, os.O_RDONLY)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(home / "socket"))
        self.socket.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                with self.socket.accept()[0] as connection:
                    connection.recv(64)
                    self.pings += 1
                    connection.sendall(
                        b"+PONG\r\n" if self.loaded else b"-LOADING the dataset in memory\r\n"
                    )

    def end(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()
        os.close(self.lock)


@pytest.fixture
def loading(home: Path) -> Iterator[Loading]:
    loading = Loading(home)
    yield loading
    loading.end()


def test_a_server_that_says_it_loads_is_waited_for_however_long_and_once_said_so(
    home, loading, monkeypatch, caplog
):
    monkeypatch.setattr(launch, "SILENCE", 0.05)
    monkeypatch.setattr(launch, "SAY_SO", 0.1)
    waiter = threading.Thread(target=Embedded(home).ready)
    with caplog.at_level(logging.WARNING, "durableq"):
        waiter.start()
        await_true(lambda: loading.pings > 60)  # at least 5 ms apart: over five times that
        assert waiter.is_alive()
        loading.loaded = True
        waiter.join(10)
    assert not waiter.is_alive()
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "the embedded server is loading its data"
    ]


def test_a_server_that_loads_is_neither_running_nor_stopped(home, loading):
    status = Embedded(home).status()
    assert (status.state, status.connections) == ("loading", None)


# Its files


def test_nobody_else_can_read_what_it_writes(enter, home):
    before = os.umask(0)
    try:
        user = enter()
    finally:
        os.umask(before)
    user.call("enqueue", "a", "secret")
    files = list(home.glob("append*/*"))
    assert files
    for path in [home, home / "socket", *files]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_directory_that_was_opened_to_others_is_closed_again(enter, home):
    enter().leave()
    home.chmod(0o755)
    enter()
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_silent_server_is_told_with_its_process(enter, home, monkeypatch):
    enter()
    server = pid_of(home)
    monkeypatch.setattr(launch, "SILENCE", 0.1)
    os.kill(server, signal.SIGSTOP)
    try:
        assert Embedded(home).status().state == "silent"
        with pytest.raises(EmbeddedServerError, match=f"process {server}"):
            Embedded(home).stop()
    finally:
        os.kill(server, signal.SIGCONT)
    assert starts(home) == 1
