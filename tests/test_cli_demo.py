"""`durableq demo`, as a process: files hashed by workers while the server is killed."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import await_true

NAMES = (
    "plain",
    "with spaces",
    "ümläut",
    "日本語",
    "🦀",
    "-dash",
    "a'b\"c",
    "[bold]x[red]",
    "100%",
)

Table = dict[str, str]

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are looked at in /proc"
)


@dataclass
class Demo:
    """Runs demos in an environment of their own, by which all of their processes are known."""

    folder: Path
    """Where they may put temporary files, and nobody else does."""

    environment: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def started(self, *words: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
        # COLUMNS: the table is not to break its lines.
        own = {"TMPDIR": str(self.folder), "COLUMNS": "500", **self.environment}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [sys.executable, "-m", "durableq", "demo", *map(str, words)],
            env=os.environ | own,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            **(pipes | options),
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        with self.started(*words, **options) as process:
            out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def left(self) -> dict[int, str]:
        """Return the processes that name our folder: servers by their title, the rest by TMPDIR."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                about = [(entry / part).read_bytes() for part in ("cmdline", "environ")]
            except OSError:
                continue
            if any(os.fsencode(self.folder) in text for text in about):
                found[int(entry.name)] = about[0].replace(b"\0", b" ").decode(errors="replace")
        return found

    def opened(self) -> set[Path]:
        """Return the files that our processes have open."""
        found = set()
        for process in self.left():
            for entry in Path(f"/proc/{process}/fd").glob("*"):
                with contextlib.suppress(OSError):
                    found.add(entry.readlink())
        return found

    def leaves_nothing(self) -> bool:
        return not self.left() and not list(self.folder.iterdir())


@pytest.fixture
def demo(short_folder: Path) -> Iterator[Demo]:
    """A runner of demos, which must have left no process and no file when the test ends."""
    folder = short_folder / "tmp"
    folder.mkdir()
    demo = Demo(folder)
    try:
        yield demo
        await_true(lambda: not demo.left(), 2)
        assert list(folder.iterdir()) == []
    finally:
        for process in demo.left():
            os.kill(process, signal.SIGKILL)
        await_true(lambda: not demo.left())


@pytest.fixture
def files(tmp_path: Path) -> Callable[[int], Path]:
    """Make a folder of some files."""

    def files(number: int) -> Path:
        folder = tmp_path / "the files"
        folder.mkdir()
        for i in range(number):
            (folder / f"{NAMES[i % len(NAMES)]} {i}").write_bytes(b"%d\n" % i * (i % 5) * 1000)
        return folder

    return files


def table(out: str) -> Table:
    """Return the rows of the table printed at the end."""
    rows = re.findall(r"^│ (.+?) +│ (.+?) +│$", out, re.MULTILINE)
    return {name: re.sub(r" \(by worker: .*", "", value) for name, value in rows}


def good(number: int) -> Table:
    return {
        "accepted": f"{number} of {number}",
        "completed": f"{number}",
        "lost": "0",
        "doubled": "0",
        "unlike the sequential pass": "0",
    }


def all_is_well(done: subprocess.CompletedProcess[str], number: int) -> bool:
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert table(done.stdout) == good(number)
    return True


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the one line on stderr of a run that ended with `code` and printed nothing else."""
    assert (done.returncode, done.stdout) == (code, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_sixty_files_survive_the_death_of_the_server(demo, files):
    done = demo.run(files(60))
    assert all_is_well(done, 60)
    assert "60 files in " in done.stdout
    assert "one job each; 4 worker processes" in done.stdout
    assert re.search(r"SIGKILL to the server \(process \d+\): 30 jobs accepted, \d+ ", done.stdout)
    assert re.search(r"the server is back with its data after \d+\.\d\d s", done.stdout)
    assert "60/60" in done.stdout, "the progress"
    shares = re.search(r"by worker: ([\d, ]+)\)", done.stdout)
    assert shares
    assert sum(map(int, shares[1].split(", "))) == 60


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 3])
def test_a_few_files_suffice(demo, files, number):
    assert all_is_well(demo.run(files(number)), number)


def test_the_number_of_workers_is_free(demo, files):
    done = demo.run("--workers", "1", files(20))
    assert all_is_well(done, 20)
    assert "1 worker processes" in done.stdout


def test_without_a_folder_it_takes_the_current_one(demo, files):
    folder = files(5)
    done = demo.run(cwd=folder)
    assert all_is_well(done, 5)
    assert str(folder) in done.stdout


def test_files_of_folders_below_count_and_hidden_folders_and_what_is_no_file_do_not(demo, files):
    folder = files(3)
    for name in ("below/and below", ".git/objects", "below/.venv"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(name)
    (folder / ".hidden file").write_text("")
    (folder / "linked").symlink_to(folder / "plain 0")
    (folder / "dangling").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe")
    assert all_is_well(demo.run(folder), 6)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_job_as_well(demo, files):
    folder = files(5)
    (folder / "plain 0").chmod(0)
    assert all_is_well(demo.run(folder), 5)


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 there")
def test_a_file_name_that_is_not_utf_8_is_no_obstacle(demo, files):
    folder = files(5)
    (Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9"))).write_text("")
    assert all_is_well(demo.run(folder), 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["[red]x ümläut", "[x[/b]"])
def test_a_folder_is_shown_as_it_is_called(demo, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / "file").write_text("")
    done = demo.run(folder)
    assert all_is_well(done, 1)
    assert str(folder) in done.stdout


def test_an_empty_folder_is_told_in_one_line(demo, tmp_path):
    assert str(tmp_path) in complaint(demo.run(tmp_path), 2)


def test_a_folder_that_is_not_there_is_told_in_one_line(demo, tmp_path):
    assert str(tmp_path / "none") in complaint(demo.run(tmp_path / "none"), 2)


def test_it_keeps_away_from_every_server_of_the_user(demo, files, embedded, short_folder):
    with embedded.client() as raw:
        before = sorted(raw.keys())
        home = short_folder / "home"
        home.mkdir()
        (home / "mine").write_text("")
        demo.environment = {"DURABLEQ_URL": embedded.url, "DURABLEQ_EMBEDDED": "never"}
        assert all_is_well(demo.run(files(5)), 5)
        assert [path.name for path in home.iterdir()] == ["mine"]
        assert sorted(raw.keys()) == before


def test_a_server_that_cannot_start_is_told_in_one_line(demo, files):
    demo.environment = {"DURABLEQ_SERVER": "/nowhere/valkey-server"}
    assert "/nowhere/valkey-server" in complaint(demo.run(files(5)), 3)


STOPS = {
    "Ctrl-C at the start": (signal.SIGINT, "worker processes"),
    "Ctrl-C while the server is away": (signal.SIGINT, "SIGKILL to the server"),
    "Ctrl-C with the server back": (signal.SIGINT, "the server is back"),
    "told to end": (signal.SIGTERM, "SIGKILL to the server"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("number", "moment"), STOPS.values(), ids=STOPS)
def test_stopped_in_the_middle_it_ends_without_noise_and_leaves_nothing(
    demo, files, number, moment
):
    with demo.started(files(2000)) as process:
        read_until(process, moment)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "│ accepted" not in out
    assert "Traceback" not in out + err
    await_true(demo.leaves_nothing, 10)


@needs_proc
@pytest.mark.slow
def test_stopped_in_the_middle_of_long_jobs_it_ends_soon(demo, files):
    folder = files(8)
    long = {sparse(folder / f"zzz {i}", 20 << 30) for i in range(4)}
    with demo.started(folder) as process:
        await_true(lambda: len(long & demo.opened()) >= 2)
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode != 0
        assert time.monotonic() - start < 8


@pytest.mark.slow
@needs_proc
def test_killed_itself_it_leaves_no_workers_that_wait_for_ever(demo, files):
    folder = files(2)
    long = sparse(folder / "zzz", 1 << 30)
    with demo.started(folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        await_true(lambda: long in demo.opened())
        process.kill()
    await_true(lambda: not demo.left(), 10)
    shutil.rmtree(demo.folder)
    demo.folder.mkdir()


def read_until(process: subprocess.Popen[str], words: str) -> None:
    for line in process.stdout:
        if words in line:
            return
    pytest.fail(f"it ended without saying {words!r}: {process.stderr.read()}")


def sparse(path: Path, size: int) -> Path:
    """Make a file that takes long to hash and no room on the disk."""
    with open(path, "wb") as file:
        file.truncate(size)
    return path
