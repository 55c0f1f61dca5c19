"""Scripts: reads lua/, pastes the includes, and gives each script's text and digest.

No list of scripts exists: a script is a file in lua/. What they do is told in their first lines.
`python -m durableq.scripts NAME` prints a script as the server sees it (its errors name lines).
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

_packaged = files("durableq") / "lua"
ROOT = _packaged if _packaged.is_dir() else Path(__file__).parents[1] / "lua"
_INCLUDE = re.compile(r"^-- include: (.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A composed script: its file's name, text, and the SHA-1 by which the server knows it."""

    name: str
    text: str
    digest: str


def compose(source: str, pasted: set[str] | None = None) -> str:
    """Return `source` with each helper it includes, and those they include, above it once."""
    pasted = set() if pasted is None else pasted
    helpers = ""
    for line in _INCLUDE.findall(source):
        for name in line.split():
            if name not in pasted:
                pasted.add(name)
                helpers += compose((ROOT / "lib" / f"{name}.lua").read_text(), pasted)
    return helpers + _INCLUDE.sub("", source)


@cache
def script(name: str) -> Script:
    """Return the script in lua/`name`.lua."""
    text = compose((ROOT / f"{name}.lua").read_text())
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
