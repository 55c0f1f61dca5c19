"""The embedded server and processes in an unusual state: without standard streams, forked in a bad
moment, suspended; and what users do to its directory.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from support import await_true
from users import KINDS, USER, connect, end_servers, kill_server, runs, script, starts

from durableq import EmbeddedServerError, Queue, launch
from durableq import home as homes
from durableq.embedded import Embedded
from durableq.home import Home
from durableq.program import find_program

linux = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
STREAMS = ["0<&-", "1>&-", "2>&-", "0<&- 1>&-", "0<&- 1>&- 2>&-"]


@pytest.mark.parametrize("closed", STREAMS)
def test_a_process_without_its_standard_streams_starts_a_server_with_the_lock(
    home, short_folder, closed
):
    code = """
import pathlib, sys
from durableq import Queue

folder = pathlib.Path(sys.argv[1])
with Queue("shared") as queue:
    assert queue.enqueue("a")
    (folder / "ready").touch()
    while not (folder / "end").exists():
        pass
"""
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", code, short_folder]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        await_true((short_folder / "ready").exists)
        assert runs(home)
        (short_folder / "end").touch()
    assert process.returncode == 0
    assert not runs(home)
    assert starts(home) == 1


def test_processes_without_an_input_share_one_server(home, short_folder):
    code = """
import sys
from durableq import Queue

with Queue("shared") as queue:
    print(sum(queue.enqueue(f"job-{i}") for i in range(50)))
"""
    words = ["sh", "-c", 'exec "$@" 0<&-', "sh", sys.executable, "-c", code]
    started = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(6)
    ]
    accepted = [int(process.communicate(timeout=30)[0]) for process in started]
    assert sum(accepted) == 50
    assert not runs(home)


def test_a_child_forked_while_the_lock_is_held_does_not_keep_it(home):
    script(
        """
        import os
        from pathlib import Path
        from durableq.home import Home

        home = Home(Path(os.environ["DURABLEQ_HOME"]))
        lock = home.lock()
        with home.deciding():
            read, write = os.pipe()
            told, tell = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(write)
                os.close(tell)
                os.read(read, 1)
                os._exit(0)
        os.close(tell)
        os.read(told, 1)  # the child is there
        lock.release()
        assert not home.locked()
        with home.deciding():
            pass
        os.close(write)
        os.waitpid(child, 0)
        """
    )


@pytest.mark.parametrize("call", ["open", "close"])
def test_no_fork_comes_between_a_lock_and_the_note_of_it(home, call):
    code = """
        import os, sys, threading
        from pathlib import Path
        from durableq.home import Home

        home = Home(Path(os.environ["DURABLEQ_HOME"]))
        if sys.argv[1] == "close":
            lock = home.lock()
        inside, forked = threading.Event(), threading.Event()
        really = getattr(os, sys.argv[1])

        def slow(*args, **kwargs):
            if sys.argv[1] == "open" and args[0] != home.folder:
                return really(*args, **kwargs)
            setattr(os, sys.argv[1], really)
            if sys.argv[1] == "open":
                opened = really(*args, **kwargs)
            inside.set()
            forked.wait(0.3)  # a fork must not get that far
            return opened if sys.argv[1] == "open" else really(*args, **kwargs)

        def fork():
            inside.wait()
            if os.fork() == 0:
                os.read(read, 1)
                os._exit(0)
            forked.set()

        read, write = os.pipe()
        os.set_inheritable(write, False)
        forking = threading.Thread(target=fork)
        forking.start()
        setattr(os, sys.argv[1], slow)
        if sys.argv[1] == "open":
            home.lock().release()
        else:
            lock.release()
        forking.join()
        while home.locked():
            pass
        os.write(write, b"1")
        os.wait()
        """
    script(code, call)


def test_a_lock_that_is_forgotten_is_let_go(home):
    lock = Home(home).lock()
    assert Home(home).lock() is None
    del lock  # an interrupt may come before it is noted anywhere
    assert Home(home).lock() is not None


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_processes_of_a_pool_leave_it_too(home, short_folder, method):
    (short_folder / "pooled.py").write_text(
        f"""
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from durableq import Queue

queue = None

def work(i):
    global queue
    queue = queue or Queue("shared")
    return queue.enqueue(f"job-{{i}}")

if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    with ProcessPoolExecutor(3, mp_context=context) as pool:
        assert all(pool.map(work, range(30)))
"""
    )
    subprocess.run([sys.executable, short_folder / "pooled.py"], check=True, timeout=30)
    assert not runs(home)


def test_a_mere_ping_does_not_keep_it(enter, home):
    end = threading.Event()

    def look() -> None:
        while not end.is_set():
            Embedded(home)._ping()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(4):
            enter().leave()
            assert not runs(home)
    finally:
        end.set()
        looking.join()


def test_a_process_suspended_while_it_leaves_does_not_hold_the_others(home, monkeypatch):
    monkeypatch.setattr(homes, "TURN", 0.1)
    queue = Queue("shared")
    with open(home / "leaving", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        queue.close()
        with pytest.raises(EmbeddedServerError, match="leaving"):
            Embedded(home).keep()
    assert runs(home), "who is suspended may still need it"
    Queue("shared").close()
    assert not runs(home)


def test_threads_that_ask_at_once_get_one_object_for_a_directory(short_folder, monkeypatch):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for i in range(200):
            monkeypatch.setenv("DURABLEQ_HOME", str(short_folder / str(i)))
            with ThreadPoolExecutor(8) as pool:
                got = list(pool.map(lambda _: Embedded.of_environment(), range(8)))
            assert len(set(map(id, got))) == 1
    finally:
        sys.setswitchinterval(before)


def test_a_subscriber_of_the_users_keeps_it(enter, home):
    user = enter()
    with connect(home) as raw, raw.pubsub() as subscriber:
        subscriber.subscribe("news")
        raw.connection_pool.disconnect(inuse_connections=False)
        user.leave()
        assert runs(home)


def test_a_cancelled_call_does_not_keep_the_process_while_the_server_loads(home):
    script(
        """
        import asyncio, fcntl, os, socket, threading
        from durableq import AsyncQueue

        home = os.environ["DURABLEQ_HOME"]
        os.mkdir(home, 0o700)
        open(home + "/lock", "w").close()
        lock = os.open(home, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(home + "/socket")
        listener.listen()
        asked = threading.Event()

        def load():
            while True:
                with listener.accept()[0] as connection:
                    connection.recv(64)
                    connection.sendall(b"-LOADING\\r\\n")
                    asked.set()

        threading.Thread(target=load, daemon=True).start()

        async def main():
            call = asyncio.ensure_future(AsyncQueue("shared").enqueue("a"))
            await asyncio.to_thread(asked.wait)
            call.cancel()
            try:
                await call
            except asyncio.CancelledError:
                print("cancelled")

        asyncio.run(main())
        os.close(lock)
        """
    )


def test_a_link_in_the_place_of_the_folder_of_links_is_refused(
    long_home, short_folder, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    (short_folder / "elsewhere").mkdir()
    Embedded(long_home).socket.parents[1].symlink_to(short_folder / "elsewhere")
    with pytest.raises(EmbeddedServerError, match="not a folder that only this user can write"):
        Embedded(long_home).ready()
    assert not list((short_folder / "elsewhere").iterdir())


# Its limits

IMPATIENT = "import durableq.policy; durableq.policy.PATIENCE = 0.1\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_with_no_room_for_connections_is_an_error_and_not_waited_for(enter, home, kind):
    enter()
    crowd = [connect(home) for _ in range(10)]
    try:
        crowd[0].config_set("maxclients", 8)
        with contextlib.suppress(redis.RedisError):
            for raw in crowd:
                raw.ping()
        user = enter(kind, wait=False, code=IMPATIENT + USER)
        with pytest.raises(AssertionError, match="max number of clients reached"):
            user.hear()
    finally:
        for raw in crowd:
            raw.close()


# Its directory


@linux
def test_who_empties_the_directory_of_a_running_server_does_not_let_a_second_one_in(
    enter, home, monkeypatch
):
    monkeypatch.setattr(launch, "SILENCE", 0.1)
    user = enter()
    for path in home.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(EmbeddedServerError, match="is held"):
        Queue("shared")
    assert user.call("enqueue", "a") is True, "it still serves whom it has"
    user.process.kill()
    (pid,) = (int(path.name) for path in Path("/proc").glob("[0-9]*") if is_in(path, home))
    os.kill(pid, 9)
    await_true(lambda: not runs(home))
    Queue("shared").close()


def is_in(process: Path, home: Path) -> bool:
    try:
        return Path(os.readlink(process / "cwd")) == home
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lock", "pid", "server", "leaving", "log"])
def test_a_file_of_ours_that_is_lost_while_the_server_runs_lets_no_second_one_in(enter, home, name):
    user = enter()
    (home / name).unlink(missing_ok=True)
    other = enter()
    assert user.call("enqueue", "a") is True
    assert other.call("reserve")[0] == "a"
    user.leave()
    other.leave()
    assert not runs(home)


def test_a_file_system_without_locks_is_told(home, monkeypatch):
    def flock(*_: object) -> None:  # as NFS answers for a directory
        raise OSError(errno.EBADF, "Bad file descriptor")

    with monkeypatch.context() as patch:
        patch.setattr(homes.fcntl, "flock", flock)
        with pytest.raises(EmbeddedServerError, match=r"as on NFS.*DURABLEQ_HOME"):
            Embedded(home).ready()
    assert [path.name for path in home.iterdir()] == ["lock"]


def test_a_user_that_has_no_home_is_told(monkeypatch):
    monkeypatch.setenv("DURABLEQ_HOME", "~there-is-no-such-user/x")
    with pytest.raises(EmbeddedServerError, match=r"set DURABLEQ_HOME.*DURABLEQ_URL"):
        Queue("shared")


def test_where_no_temporary_folder_can_be_written_an_existing_link_is_used(long_home, monkeypatch):
    def gettempdir() -> str:
        raise FileNotFoundError("No usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", gettempdir)
    assert Home(long_home).socket.parents[2] == Path("/tmp")


def test_a_directory_whose_name_is_no_text_can_be_printed(short_folder):
    home = os.fsencode(short_folder) + b"/\xff"
    environment = {**os.environb, b"DURABLEQ_HOME": home}
    for words, code in ((["start"], 0), (["status", "--json"], 0), (["stop"], 0), (["status"], 3)):
        done = subprocess.run(
            [sys.executable, "-m", "durableq", "server", *words],
            check=False,
            env=environment,
            capture_output=True,
        )
        assert (done.returncode, done.stderr) == (code, b"")
        if "--json" in words:
            assert os.fsencode(json.loads(done.stdout)["home"]) == home
    end_servers(short_folder)


@pytest.mark.parametrize("text", ["", "²", "-1", "x", "1 2"])
def test_a_pid_that_is_none_is_no_trouble(home, text):
    home.mkdir()
    (home / "pid").write_text(text)
    assert Embedded(home).status().pid is None
    assert Home(home).pid is None


def test_a_program_may_be_named_as_on_the_path(enter, monkeypatch):
    found = find_program().path
    path = f"{found.parent}:{os.environ['PATH']}"
    assert enter(DURABLEQ_SERVER=found.name, PATH=path).call("enqueue", "a") is True


def test_a_server_killed_while_it_is_left_is_no_trouble(enter, home):
    users = [enter() for _ in range(4)]
    kill_server(home)
    for user in users:
        user.leave()
    assert not runs(home)
