"""The command line: `durableq`. Only its door is here; it needs the extra `cli`."""

import sys


def main() -> None:
    """Run the command line; without its extra, say which one to install."""
    try:
        from durableq.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("durableq: the command line needs an extra: pip install 'durableq[cli]'")
    run()
