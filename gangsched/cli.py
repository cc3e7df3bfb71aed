"""The command line: flags in, exit code out.

Invariant: an error that the administrator can correct ends with one sentence on stderr and code 2,
never a traceback; a bug ends with a traceback in the log and code 1; ctrl-C is quiet, 130. This
module does not read files or contact a cluster (`settings` and `app` do), and imports only what the
command needs.
"""

from __future__ import annotations

import gc
import inspect
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from gangsched import __version__
from gangsched.configuration import load
from gangsched.console import CANNOT, CommandLine, ended, lacks_scheduler
from gangsched.options import ConfigFormat, effective, with_settings
from gangsched.settings import SettingsError

EXIT_BUG = 1

cli = typer.Typer(
    cls=CommandLine,
    name="gangsched",
    help="A gang scheduler for Kubernetes that runs alongside the cluster's own scheduler.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gangsched {__version__}")
        raise typer.Exit


@cli.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """A gang scheduler for Kubernetes that runs alongside the cluster's own scheduler."""


def _run(config: Path | None, overrides: dict[str, object]) -> int:
    """Run the scheduler until it receives SIGTERM or SIGINT."""
    return guarded(lambda: _schedule(config, overrides))


def _config(config: Path | None, overrides: dict[str, object]) -> int:
    """Print the effective settings and their sources. Takes the same flags as `run`."""
    output = ConfigFormat(str(overrides.pop("output")))

    def work() -> int:
        typer.echo(effective(load(config, overrides), output))
        return 0

    return guarded(work)


OUTPUT = inspect.Parameter(
    "output",
    inspect.Parameter.KEYWORD_ONLY,
    default=ConfigFormat.TABLE,
    annotation=Annotated[
        ConfigFormat, typer.Option("--output", "-o", help="Output format: table or json.")
    ],
)
cli.command("run")(with_settings(_run))
cli.command("config")(with_settings(_config, OUTPUT))


@cli.command()
def simulate(
    *,
    nodes: Annotated[
        Path,
        typer.Option(
            help=(
                "CSV file with nodes, in the format of gangsched (name, gpus, …) or of the openb"
                " trace."
            )
        ),
    ],
    jobs: Annotated[
        Path,
        typer.Option(
            help=(
                "CSV file with jobs, in the format of gangsched (submitted, run_seconds, …) or of"
                " the openb "
                "or Philly trace."
            )
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            help="YAML file with settings, as for `run`; GANGSCHED_* variables override it."
        ),
    ] = None,
    stated: Annotated[
        str,
        typer.Option(
            help=(
                "Run times that the simulated jobs declare: file (as in the jobs file), exact (the"
                " real ones), class "
                "(the real ones rounded up to 10m, 1h, 4h, 1d, …), half (as class for about "
                "half of the jobs, none for the others) or nothing."
            )
        ),
    ] = "file",
    out: Annotated[
        Path | None, typer.Option(help="CSV file for the start and end of each job.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Image file (.svg, .png) for a plot of the waiting times; requires matplotlib."
        ),
    ] = None,
    spans: Annotated[
        Path | None,
        typer.Option(help="File of JSON lines for the time and the nodes of each attempt."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Chrome trace file for Perfetto, with a row per node."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Page that shows the simulation in a browser; needs kubectl-gangsched."),
    ] = None,
) -> None:
    """Simulate how long jobs would wait on a given set of nodes. Needs no cluster."""

    def work() -> int:
        from gangsched.configuration import load_settings
        from gangsched.simulate.command import simulate as play
        from gangsched.simulate.statements import parse_stated

        return play(
            nodes,
            jobs,
            load_settings(config, {}),
            stated=parse_stated(stated),
            out=out,
            plot=plot,
            spans=spans,
            trace=trace,
            html=html,
        )

    raise typer.Exit(guarded(work))


@cli.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"gangsched {__version__}")


def main() -> None:
    """Run the console script; ends the process with the command's exit code."""
    # The kernel keeps SIGTERM from the first process of a container that has no handler; the
    # daemon's comes later.
    signal.signal(signal.SIGTERM, _leave)
    cli()


def _leave(number: int, frame: FrameType | None) -> None:
    """There is nothing to finish yet."""
    raise SystemExit(0)


def guarded(work: Callable[[], int]) -> int:
    """Run `work` and return its exit code, or report its exception and return the code for it.

    If it is an exception group and the administrator can correct all its leaves, the first one is
    reported.
    """
    return ended("gangsched", work, _explained)


def _explained(error: Exception) -> tuple[str, int]:
    if lacks := lacks_scheduler(error, "gangsched[scheduler]"):
        return lacks, CANNOT

    mend = _mendable(error)
    if mend is not None:
        return str(mend), CANNOT

    import structlog

    structlog.get_logger().critical("bug", error=f"{type(error).__name__}: {error}", exc_info=error)
    return "", EXIT_BUG


def _mendable(error: Exception) -> Exception | None:
    """The error that the administrator can correct, if there is no other."""
    from gangsched.kube.http.faults import Misconfigured
    from gangsched.simulate.tables import InputError

    kinds = (SettingsError, Misconfigured, InputError)
    if not isinstance(error, ExceptionGroup):
        return error if isinstance(error, kinds) else None

    inner = [_mendable(exception) for exception in error.exceptions]
    return inner[0] if all(inner) else None


def _schedule(config: Path | None, overrides: dict[str, object]) -> int:
    from gangsched.configuration import load_settings
    from gangsched.telemetry.logs import configure_logging

    # the imports to come would be looked through again and again; the daemon enables it once it is
    # ready
    gc.disable()
    settings = load_settings(config, overrides)
    configure_logging(settings.log_format, settings.log_level)
    from gangsched.app import run_daemon

    return run_daemon(settings, lambda: load_settings(config, overrides), config)
