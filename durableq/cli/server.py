"""`durableq server`: the embedded server of this user, by hand."""

import dataclasses
import json
import os
from typing import Annotated

import typer

from durableq.embedded import Embedded, Status

app = typer.Typer(
    help="""Start, stop or look at the embedded server.

    It is the one that queues use where no URL is given: in `DURABLEQ_HOME`, or in the user's state
    directory. Usually nobody needs to start it: the first queue does, and the last one stops it.

    Exit codes: 0 done; 2 the environment cannot be used; 3 the server does not run, or cannot.
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def start(as_json: Json = False) -> None:
    """Start the server, and let it run until `durableq server stop`."""
    _note()
    server = Embedded.of_environment()
    server.keep()
    _print(server.status(), as_json)


@app.command()
def stop(as_json: Json = False) -> None:
    """Stop the server, whoever uses it. What it holds stays on disk."""
    _note()
    server = Embedded.of_environment()
    server.stop()
    found = server.status()
    _print(found, as_json)
    if found.state != "stopped":
        typer.echo("durableq: it was stopped; its users have started it again: end them", err=True)
        raise typer.Exit(3)


@app.command()
def status(as_json: Json = False) -> None:
    """Print whether the server runs, its URL, and where its data is. Starts nothing."""
    _note()
    found = Embedded.of_environment().status()
    _print(found, as_json)
    if found.state in ("stopped", "silent"):
        raise typer.Exit(3)


def _note() -> None:
    if os.environ.get("DURABLEQ_URL"):
        typer.echo("durableq: DURABLEQ_URL is set: queues use that server, not this one", err=True)


def _print(found: Status, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found)))
        return
    process = f", process {found.pid}" if found.pid else ""
    lines = {
        "state": found.state + (f": {found.server}{process}" if found.server else process),
        "url": found.url,
        "data": f"{found.home} ({found.data_bytes / 1e6:.1f} MB)",
    }
    if found.connections is not None:
        number = f"{found.connections} connection{'' if found.connections == 1 else 's'}"
        ends = "until the last one leaves" if found.connections else "until its next user leaves"
        ends = "until `durableq server stop`" if found.kept else ends
        lines["users"] = f"{number}; it runs {ends}"
    elif found.kept:
        lines["users"] = "none; the next one's server runs until `durableq server stop`"
    for name, value in lines.items():
        typer.echo(f"{name:6} {value}")
