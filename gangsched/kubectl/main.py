"""The command line of `kubectl gangsched`: flags in, exit code out.

Invariant: a command is imported when it is called. Exit codes: 0 yes or done; 1 no, or problems found; 2 no answer
(misuse, missing permission, no API server, unknown name); 3 a bug; 130 ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

from gangsched import __version__
from gangsched.kubectl.session import Session, guarded
from gangsched.kubectl.terminal import Output

P = ParamSpec("P")
cli = typer.Typer(
    name="kubectl-gangsched",
    help="Inspect the gangs of a cluster. Exit codes: 0 success, or the answer yes; 1 the answer no, or problems "
    "found; 2 wrong usage, a missing permission or an unreachable cluster; 3 internal error.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace. Default: that of the kubeconfig context.")
]
Kubeconfig = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Path to a kubeconfig. Default: $KUBECONFIG, else ~/.kube/config.")
]
Context = Annotated[str | None, typer.Option(help="Kubeconfig context. Default: the current context.")]
Form = Annotated[Output, typer.Option("--output", "-o", help="Output format: text or json.")]


@cli.callback()
def root() -> None:
    """Inspect the gangs of a cluster. Exit codes: 0 success, or the answer yes; 1 the answer no, or problems found; 2
    wrong usage, a missing permission or an unreachable cluster; 3 internal error.
    """


def _exits(command: Callable[P, int]) -> Callable[P, None]:
    """Let the process end with the exit code that a command returns."""

    @wraps(command)  # typer reads the options from the signature of what is wrapped
    def exits(*args: P.args, **options: P.kwargs) -> None:
        raise typer.Exit(guarded(partial(command, *args, **options)))

    return exits


@cli.command()
@_exits
def why(
    target: Annotated[str, typer.Argument(metavar="POD|GANG", help="Pod or gang: NAME, pod/NAME or gang/NAME.")],
    *,
    namespace: Namespace = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Explain why a pod or gang is waiting, or show where it runs."""

    from gangsched.kubectl.why import why as ask

    return ask(Session(namespace, kubeconfig, context), target, output)


@cli.command("map")
@_exits
def gpu_map(
    *,
    resource: Annotated[
        str | None, typer.Option(help="Extended resource to show. Default: all accelerators in the cluster.")
    ] = None,
    selector: Annotated[
        str | None, typer.Option("--selector", "-l", help="Label selector of the nodes to show.")
    ] = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Show which gangs use the GPUs of each node. Requires permission to list nodes and pods."""

    from gangsched.kubectl.gpu_map import show

    return show(Session(None, kubeconfig, context), resource, selector or "", output)


@cli.command()
@_exits
def doctor(
    *,
    system: Annotated[
        str, typer.Option("--scheduler-namespace", help="Namespace in which gangsched runs.")
    ] = "gangsched-system",
    account: Annotated[
        str, typer.Option("--service-account", help="Name of gangsched's ServiceAccount.")
    ] = "gangsched",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Check the cluster for problems that keep gangs from being scheduled; exit code 1 if there are any."""

    from gangsched.kubectl.doctor.command import doctor as examine

    return examine(Session(None, kubeconfig, context), system, account, output)


@cli.command()
@_exits
def snapshot(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output file.")] = Path(
        "gangsched-snapshot.json.gz"
    ),
    redact_names: Annotated[
        bool, typer.Option("--redact-names", help="Replace the names of all objects with pseudonyms.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Save the scheduler's input (nodes, pods, PodGroups, volumes, …) to a file. Environment variables, images and
    arguments are left out.
    """

    from gangsched.kubectl.snapshot.take import snapshot as take

    return take(Session(None, kubeconfig, context), out, redact_names=redact_names)


@cli.command()
@_exits
def replay(
    file: Annotated[Path, typer.Argument(help="Snapshot file.")],
    *,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with settings. Default: the settings in the snapshot.")
    ] = None,
    scheduler_name: Annotated[
        list[str] | None,
        typer.Option(help="Schedule pods with this spec.schedulerName; repeatable. Default: as in the snapshot."),
    ] = None,
    output: Form = Output.TEXT,
) -> int:
    """Schedule a snapshot offline, and print the decision for each waiting group."""

    from gangsched.kubectl.snapshot.replay import replay as play

    return play(file, config, scheduler_name, output)


@cli.command()
@_exits
def queue(
    *,
    namespace: Namespace = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the gangs of all namespaces.")
    ] = False,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """List waiting gangs in queue order. Requires the gangs API (setting visibility_port of the scheduler)."""

    from gangsched.kubectl.waiting import queue as ask

    return ask(Session(namespace, kubeconfig, context), output, all_namespaces=everywhere)


@cli.command()
@_exits
def plan(
    *,
    file: Annotated[
        Path, typer.Option("--filename", "-f", metavar="FILE", help="Manifest file; - reads standard input.")
    ],
    minimum: Annotated[
        int | None,
        typer.Option("--min", min=0, help="Minimum number of members of each gang. Default: as in the manifest."),
    ] = None,
    namespace: Namespace = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Check whether the workload in a manifest would start now; exit code 1 if not. Nothing is created."""

    from gangsched.kubectl.plan.command import plan as ask

    return ask(Session(namespace, kubeconfig, context), file, minimum, output)


@cli.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"kubectl-gangsched {__version__}")


def main() -> None:
    """Run the console script; ends the process with the command's exit code."""
    cli(prog_name="kubectl-gangsched")
