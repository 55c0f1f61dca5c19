"""The fixtures: one contract, run on every kind of server and for both kinds of queue."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from servers import WANTED, Servers, backends, installed
from support import Backend, Lab, redis_server, running
from users import Start, User, end_servers

from durableq.embedded import Embedded
from durableq.program import find_program

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Run in the background of a shell: the processes that tests interrupt are to hear it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "durableq",
    deadline=None,  # a shared machine's pauses are no failures
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("durableq")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--servers",
        metavar="NAME,...|all",
        type=chosen,
        help="run the tests that differ by server, and only those, on these servers (valkey-9.1, "
        "redis-6.2, ...) over RESP2 and RESP3",
    )


def chosen(given: str) -> list[str]:
    known = sorted({*installed(), *WANTED})
    wanted = known if given == "all" else given.split(",")
    if not set(wanted) <= set(known) or not set(wanted) & set(installed()):
        raise pytest.UsageError(f"--servers={given}: there are {', '.join(installed())}")
    if required() and (missing := set(wanted) - set(installed())):
        raise pytest.UsageError(f"DURABLEQ_TEST_SERVERS=required, without {sorted(missing)}")
    return wanted


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        given = metafunc.config.getoption("--servers")
        names = backends(given) if given else ["embedded"]
        if not given and "real" not in metafunc.fixturenames:
            names.append("fake")
        metafunc.parametrize("backend", names, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--servers"):
        others = {item for item in items if "backend" not in getattr(item, "fixturenames", ())}
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]
    for item in items:
        # Each of both is in the fast suite with another partner.
        if "async-fake" in item.name or (
            "far" in getattr(item, "fixturenames", ()) and "async" in item.name
        ):
            item.add_marker(pytest.mark.slow)


def pytest_configure(config: pytest.Config) -> None:
    client = os.environ.get("DURABLEQ_TEST_CLIENT", "")
    if not redis.__version__.startswith(client):
        raise pytest.UsageError(f"redis-py {client} was to be tested, not {redis.__version__}")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    say, given = terminalreporter.write_line, config.getoption("--servers")
    if not given and redis_server() is None:
        say("there is no redis-server on PATH: the tests on it were skipped")
    if given:
        say(f"with redis-py {redis.__version__}, over RESP2 and RESP3:")
        for name in given:
            say(f"  {name:10}  {installed().get(name, 'SKIPPED: it is not installed')}")


def required() -> bool:
    """Tell whether a missing server is a failure."""
    return os.environ.get("DURABLEQ_TEST_SERVERS") == "required"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, short_folder: Path) -> None:
    """No test touches the user's server, or a server that the environment names."""
    monkeypatch.delenv("DURABLEQ_URL", raising=False)
    monkeypatch.delenv("DURABLEQ_EMBEDDED", raising=False)
    monkeypatch.delenv("DURABLEQ_SERVER", raising=False)
    monkeypatch.setenv("DURABLEQ_HOME", str(short_folder / "home"))


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name (pytest's own may not)."""
    folder = Path(tempfile.mkdtemp(prefix="dq-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def embedded_server() -> Iterator[Embedded]:
    """The embedded server itself, as users get it, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="dq-"))
    server = Embedded(folder)
    server.ready()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def embedded(embedded_server: Embedded) -> Backend:
    return Backend("embedded", f"unix://{embedded_server.socket}")


@pytest.fixture(scope="session")
def redis_program() -> str:
    """The distribution's Redis; CI demands it, a desk may do without."""
    program = redis_server()
    if program is None:
        if required():
            pytest.fail("there is no redis-server on PATH, and DURABLEQ_TEST_SERVERS=required")
        pytest.skip("there is no redis-server on PATH")
    return program


@pytest.fixture(scope="session")
def redis7(redis_program: str) -> Iterator[Backend]:
    folder = Path(tempfile.mkdtemp(prefix="dq-"))
    with running(redis_program, folder) as url:
        yield Backend("redis", url)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def fake() -> Backend:
    return Backend("fake")


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with Servers() as servers:
        yield servers


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each kind of server in turn; see pytest_generate_tests."""
    if request.param in ("embedded", "fake"):
        return request.getfixturevalue(request.param)
    return request.getfixturevalue("servers").backend(request.param)


@pytest.fixture
def real(backend: Backend) -> Backend:
    """Each kind of real server in turn."""
    return backend


@pytest.fixture(params=["sync", "async"])
def lab(request: pytest.FixtureRequest, backend: Backend) -> Iterator[Lab]:
    """A maker of queues: both kinds on every server."""
    lab = Lab(backend, request.param == "async")
    yield lab
    lab.end()


@pytest.fixture(params=["sync", "async"])
def real_lab(request: pytest.FixtureRequest, real: Backend) -> Iterator[Lab]:
    """A maker of queues: both kinds on every real server."""
    lab = Lab(real, request.param == "async")
    yield lab
    lab.end()


@pytest.fixture
def home(short_folder: Path) -> Iterator[Path]:
    """The directory of the environment's embedded server; none runs below its parent at the end."""
    yield short_folder / "home"
    end_servers(short_folder)


@pytest.fixture
def enter(home: Path) -> Iterator[Start]:
    """Start another process with a queue, and wait until it is open."""
    users: list[User] = []

    def enter(*args: Any, wait: bool = True, **kwargs: Any) -> User:
        users.append(User(*args, **kwargs))
        if wait:
            users[-1].hear()
        return users[-1]

    yield enter
    for user in users:
        user.process.kill()
        with user.process:
            pass


@pytest.fixture
def fresh_lookup() -> Iterator[None]:
    """Look for the server's program anew."""
    find_program.cache_clear()
    yield
    find_program.cache_clear()


@pytest.fixture
def long_home(home: Path) -> Path:
    """A directory whose path is too long for a socket in it."""
    return home.parent / ("long" * 20) / ("longer" * 20)
