"""The commands and their options. What a command does is in the module of its name.

Exit codes: 0 done; 1 the check failed; 2 the input or the options cannot be used; 3 the server, or
what it holds, cannot be used.
"""

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import durableq
from durableq.cli import demo as demos
from durableq.cli import scenario as scenarios
from durableq.cli import server
from durableq.errors import DurableQueueError, InvalidArgument

app = typer.Typer(
    help="A durable job queue on Redis or Valkey with exact semantics.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

app.add_typer(server.app, name="server")

Url = Annotated[
    str | None,
    typer.Option(
        envvar="DURABLEQ_URL",
        help="The server: redis://HOST:PORT/DB, rediss://... or unix://PATH. "
        "Without it the embedded server is used.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"durableq {durableq.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version)
    ] = False,
) -> None:
    pass


@app.command()
def scenario(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files of scenarios; - reads stdin.")
    ],
    url: Url = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with each line's `expect`.")
    ] = False,
) -> None:
    """Run scenarios of operations, each on queues of its own, and print what they answered.

    A line is an object such as

    ```
    {"capacity": 2, "ops": [["enqueue", ID, PAYLOAD], ["reserve"],
      ["ack", ID, ATTEMPT], ["retry", ID, ATTEMPT], ["cancel", ID],
      ["new"], ["use", INDEX]]}
    ```

    A queue exists from the start; `new` makes and selects another one, `use` selects an earlier
    one. A file may also hold one such object over several lines. For each scenario one JSON array
    is printed, a position for each operation.

    Exit codes: 0 done, 1 a line differs from its `expect`, 2 malformed input, 3 no server.
    """
    raise typer.Exit(scenarios.main(files, url, check=check))


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="The folder whose files are the jobs.")] = Path(),
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 4,
) -> None:
    """Hash every file of a folder with worker processes, and kill the server in the middle.

    One job per file; hidden folders are left out. The workers compute SHA-256 and size on one queue
    of an embedded server of their own, which is killed (SIGKILL) and comes back. At the end each
    result is held against a plain sequential pass.

    Exit codes: 0 nothing lost, nothing doubled, nothing wrong; 1 otherwise; 2 no files.
    """
    raise typer.Exit(demos.main(folder, workers))


def run() -> None:
    """Run the command line; an error of durableq is one line and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be any bytes
    try:
        try:
            app(prog_name="durableq")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone, and wants to hear nothing of it at our end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except InvalidArgument as error:
        typer.echo(f"durableq: {error}", err=True)
        sys.exit(2)
    except DurableQueueError as error:
        typer.echo(f"durableq: {error}", err=True)
        sys.exit(3)
