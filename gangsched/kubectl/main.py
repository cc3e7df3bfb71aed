"""The command line of `kubectl gangsched`: flags in, exit code out.

Invariant: a command is imported when it is called. Exit codes: 0 there is an answer; 1 the answer is no, or something
was found; 2 there is no answer (misuse, no rights, no API server, nothing of that name); 3 a bug; 130 ctrl-C.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gangsched import __version__
from gangsched.kubectl.session import Session, guarded
from gangsched.kubectl.terminal import Output

cli = typer.Typer(
    name="kubectl-gangsched",
    help="Ask a cluster about its gangs. Exit codes: 0 answered, 1 no or findings, 2 no answer, 3 a bug.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="The namespace; else that of the kubeconfig's context.")
]
Kubeconfig = Annotated[Path | None, typer.Option(metavar="FILE", help="Else $KUBECONFIG, else ~/.kube/config.")]
Context = Annotated[str | None, typer.Option(help="A context of the kubeconfig; else the current one.")]
Form = Annotated[Output, typer.Option("--output", "-o", help="text or json.")]


@cli.callback()
def root() -> None:
    """Ask a cluster about its gangs. Exit codes: 0 answered, 1 no or findings, 2 no answer, 3 a bug."""


@cli.command()
def why(
    target: Annotated[str, typer.Argument(metavar="POD|GANG", help="NAME, pod/NAME or gang/NAME.")],
    *,
    namespace: Namespace = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Say why a pod or a gang waits, or where it is."""

    def work() -> int:
        from gangsched.kubectl.why import why as ask

        return ask(Session(namespace, kubeconfig, context), target, output)

    raise typer.Exit(guarded(work))


@cli.command("map")
def gpu_map(
    *,
    resource: Annotated[str | None, typer.Option(help="The resource to count; else the accelerators found.")] = None,
    selector: Annotated[str | None, typer.Option("--selector", "-l", help="Only nodes with these labels.")] = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show which gang uses which GPUs, node by node; you must be allowed to list nodes and pods."""

    def work() -> int:
        from gangsched.kubectl.gpu_map import show

        return show(Session(None, kubeconfig, context), resource, selector or "", output)

    raise typer.Exit(guarded(work))


@cli.command()
def doctor(
    *,
    system: Annotated[
        str, typer.Option("--scheduler-namespace", help="The scheduler's namespace.")
    ] = "gangsched-system",
    account: Annotated[str, typer.Option("--service-account", help="The scheduler's ServiceAccount.")] = "gangsched",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Look for what keeps gangs from being scheduled; exit code 1 if anything is found."""

    def work() -> int:
        from gangsched.kubectl.doctor.command import doctor as examine

        return examine(Session(None, kubeconfig, context), system, account, output)

    raise typer.Exit(guarded(work))


@cli.command()
def snapshot(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write it.")] = Path(
        "gangsched-snapshot.json.gz"
    ),
    redact_names: Annotated[bool, typer.Option("--redact-names", help="Replace the names of all objects.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write everything that a plan is made from to one file, without environments, images and arguments."""

    def work() -> int:
        from gangsched.kubectl.snapshot.take import snapshot as take

        return take(Session(None, kubeconfig, context), out, redact_names=redact_names)

    raise typer.Exit(guarded(work))


@cli.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A file that snapshot wrote.")],
    *,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings; else those of the snapshot.")] = None,
    scheduler_name: Annotated[list[str] | None, typer.Option(help="Serve pods with this schedulerName.")] = None,
    output: Form = Output.TEXT,
) -> None:
    """Plan a snapshot without a cluster, and print what the scheduler would say of everything that waits."""

    def work() -> int:
        from gangsched.kubectl.snapshot.replay import replay as play

        return play(file, config, scheduler_name, output)

    raise typer.Exit(guarded(work))


@cli.command()
def queue(
    *,
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")] = False,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show the gangs that wait in the order of the queue; the gangs API must be served."""

    def work() -> int:
        from gangsched.kubectl.waiting import queue as ask

        return ask(Session(namespace, kubeconfig, context), output, all_namespaces=everywhere)

    raise typer.Exit(guarded(work))


@cli.command()
def plan(
    *,
    file: Annotated[Path, typer.Option("--filename", "-f", metavar="FILE", help="A manifest; - is stdin.")],
    minimum: Annotated[int | None, typer.Option("--min", min=0, help="The minimum of each gang.")] = None,
    namespace: Namespace = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Say whether what a manifest describes would start now; exit code 1 if it would not. Nothing is created."""

    def work() -> int:
        from gangsched.kubectl.plan.command import plan as ask

        return ask(Session(namespace, kubeconfig, context), file, minimum, output)

    raise typer.Exit(guarded(work))


@cli.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"kubectl-gangsched {__version__}")


def main() -> None:
    """Run the console script; ends the process with the command's exit code."""
    cli(prog_name="kubectl-gangsched")
