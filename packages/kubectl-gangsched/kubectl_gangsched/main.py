"""The command line of `kubectl gangsched`: flags in, exit code out.

Invariant: a command is imported when it is called. Exit codes: 0 yes or done; 1 no, or problems
found; 2 no answer (misuse, missing permission, no API server, unknown name); 3 a bug; 130 ctrl-C.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from gangsched import __version__
from gangsched.console import CommandLine
from kubectl_gangsched.connection import FLAGS, parameters, with_flags
from kubectl_gangsched.session import Session, guarded
from kubectl_gangsched.terminal import Output

cli = typer.Typer(
    cls=CommandLine,
    name="kubectl-gangsched",
    help=(
        "Inspect the gangs of a cluster. Exit codes: 0 success, or the answer yes; 1 the answer no,"
        " or problems found; 2 wrong usage, a missing permission or an unreachable cluster; 3"
        " internal error."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Form = Annotated[Output, typer.Option("--output", "-o", help="Output format: text, json or yaml.")]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a page that shows this in a browser, as one file."),
]
SNAPSHOT = Path("gangsched-snapshot.json.gz")
MORE = "`kubectl gangsched --help` lists more connection options, which every command accepts."


def root(called: typer.Context, **flags: Any) -> None:
    """Inspect the gangs of a cluster. Exit codes: 0 success, or the answer yes; 1 the answer no, or
    problems found; 2 wrong usage, a missing permission or an unreachable cluster; 3 internal error.
    Connection options may also follow the command.
    """
    called.obj = flags


_called = inspect.Parameter(
    "called",
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    annotation=typer.Context,
)
root.__signature__ = inspect.Signature([_called, *parameters(frozenset(FLAGS))])  # type: ignore[attr-defined]
cli.callback()(root)


def _gangs(context: typer.Context, incomplete: str) -> list[str]:
    from kubectl_gangsched.names import gangs

    return gangs(context, incomplete)


def _gangs_and_pods(context: typer.Context, incomplete: str) -> list[str]:
    from kubectl_gangsched.names import gangs_and_pods

    return gangs_and_pods(context, incomplete)


def _exits(command: Callable[..., int]) -> Callable[..., None]:
    """Let the process end with the exit code that a command returns."""

    @wraps(command)  # typer reads the options from the signature of what is wrapped
    def exits(*args: Any, **options: Any) -> None:
        raise typer.Exit(guarded(partial(command, *args, **options)))

    exits.__signature__ = inspect.signature(command, eval_str=True)  # type: ignore[attr-defined]
    return exits


def _connected(*, takes_namespace: bool) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """A command that asks the cluster: its first parameter is the session."""

    def decorated(command: Callable[..., int]) -> Callable[..., None]:
        return _exits(with_flags(command, takes_namespace=takes_namespace))

    return decorated


@cli.command(epilog=MORE)
@_connected(takes_namespace=True)
def why(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Gang, pod or owner of pods: NAME, gang/NAME, pod/NAME, job/NAME, …",
            autocompletion=_gangs_and_pods,
        ),
    ],
    *,
    output: Form = Output.TEXT,
) -> int:
    """Explain why a pod or gang is waiting, or show where it runs."""

    from kubectl_gangsched.why import why as ask

    return ask(session, target, output)


@cli.command("map", epilog=MORE)
@_connected(takes_namespace=False)
def gpu_map(
    session: Session,
    *,
    resource: Annotated[
        str | None,
        typer.Option(help="Extended resource to show. Default: all accelerators in the cluster."),
    ] = None,
    selector: Annotated[
        str | None, typer.Option("--selector", "-l", help="Label selector of the nodes to show.")
    ] = None,
    output: Form = Output.TEXT,
) -> int:
    """Show which gangs use the GPUs of each node. Requires permission to list nodes and pods."""

    from kubectl_gangsched.gpu_map import show

    return show(session, resource, selector or "", output)


@cli.command(epilog=MORE)
@_connected(takes_namespace=False)
def doctor(
    session: Session,
    *,
    system: Annotated[
        str, typer.Option("--scheduler-namespace", help="Namespace in which gangsched runs.")
    ] = "gangsched-system",
    account: Annotated[
        str, typer.Option("--service-account", help="Name of gangsched's ServiceAccount.")
    ] = "gangsched",
    output: Form = Output.TEXT,
) -> int:
    """Find what keeps gangs from being scheduled. Exit code 1 if there is anything."""

    from kubectl_gangsched.doctor.command import doctor as examine

    return examine(session, system, account, output)


@cli.command(epilog=MORE)
@_connected(takes_namespace=False)
def snapshot(
    session: Session,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Output file. Default: gangsched-snapshot.json.gz, and none with --html.",
        ),
    ] = None,
    html: Html = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="DURATION",
            help="With --html and --for: time between the moments that the page shows.",
        ),
    ] = None,
    lasting: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="With --every: time until the last moment. The page is whole after each moment.",
        ),
    ] = None,
    redact_names: Annotated[
        bool,
        typer.Option("--redact-names", help="Replace the names of all objects with pseudonyms."),
    ] = False,
) -> int:
    """Save the scheduler's input to a file. It has nodes, pods, PodGroups, volumes and more;
    environment variables, images and arguments are left out.
    """

    if html is None and every is None and lasting is None:
        from kubectl_gangsched.snapshot.take import snapshot as take

        return take(session, out or SNAPSHOT, redact_names=redact_names)

    from kubectl_gangsched.snapshot.pages import snapshot_page, wanted_page

    wanted = wanted_page(html, out, every, lasting, redact_names=redact_names)
    return snapshot_page(session, wanted)


@cli.command()
@_exits
def replay(
    file: Annotated[Path, typer.Argument(help="Snapshot file.")],
    *,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML file with settings. Default: the settings in the snapshot."),
    ] = None,
    scheduler_name: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Schedule pods with this spec.schedulerName; repeatable. Default: as in the"
                " snapshot."
            )
        ),
    ] = None,
    html: Html = None,
    output: Form = Output.TEXT,
) -> int:
    """Schedule a snapshot offline. Prints the decision for each waiting group."""

    from kubectl_gangsched.snapshot.replay import replay as play

    return play(file, config, scheduler_name, output, html)


@cli.command(epilog=MORE)
@_connected(takes_namespace=True)
def queue(
    session: Session,
    *,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the gangs of all namespaces.")
    ] = False,
    output: Form = Output.TEXT,
) -> int:
    """List waiting gangs in queue order. Without the gangs API, oldest first."""

    from kubectl_gangsched.waiting import queue as ask

    return ask(session, output, all_namespaces=everywhere)


@cli.command(epilog=MORE)
@_connected(takes_namespace=True)
def history(
    session: Session,
    gang: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Gang, or owner of its pods: NAME, gang/NAME, job/NAME, …",
            autocompletion=_gangs,
        ),
    ],
    *,
    output: Form = Output.TEXT,
) -> int:
    """Show what was decided about a gang. This is its starts, refused binds, preemptions, timeouts,
    reservations and lost members.
    """

    from kubectl_gangsched.history import history as ask

    return ask(session, gang, output)


@cli.command(epilog=MORE)
@_connected(takes_namespace=True)
def plan(
    session: Session,
    *,
    file: Annotated[
        Path,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Manifest file; - reads standard input.",
        ),
    ],
    minimum: Annotated[
        int | None,
        typer.Option(
            "--min",
            min=0,
            help="Minimum number of members of each gang. Default: as in the manifest.",
        ),
    ] = None,
    output: Form = Output.TEXT,
) -> int:
    """Check whether a workload would start now. Exit code 1 if not; nothing is created."""

    from kubectl_gangsched.plan.command import plan as ask

    return ask(session, file, minimum, output)


@cli.command(epilog=MORE)
@_connected(takes_namespace=True)
def ui(
    session: Session,
    *,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the link in a browser.")
    ] = True,
) -> int:
    """Show the cluster in a browser, with your permissions. Serves a page on 127.0.0.1 until
    ctrl-C, or until it has not been open for an hour.
    """

    from kubectl_gangsched.page.live.command import ui as serve

    return serve(session, browser=browser)


@cli.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"kubectl-gangsched {__version__}")


def main() -> None:
    """Run the console script; ends the process with the command's exit code."""
    cli(prog_name="kubectl-gangsched")
