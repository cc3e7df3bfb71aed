"""`replay`: print what the daemon would decide about a snapshot (`gangsched.snapshots.playing`)."""

from __future__ import annotations

import sys
from pathlib import Path

from gangsched import __version__
from gangsched.configuration import load
from gangsched.console import DONE
from gangsched.model.fault import InternalFault
from gangsched.model.text import counted
from gangsched.settings import SettingsError
from gangsched.snapshots import file
from gangsched.snapshots.playing import Played, ReplayedVerdict, gangs_of, play
from kubectl_gangsched.outputs import PrintedReason, PrintedVerdict, ReplayOutput
from kubectl_gangsched.page import file_host
from kubectl_gangsched.page.document import Document
from kubectl_gangsched.page.from_snapshot import moment_of
from kubectl_gangsched.session import CannotAnswer
from kubectl_gangsched.terminal import Cell, Output, clean, columns, write, write_value


def replay(
    path: Path,
    config: Path | None,
    names: list[str] | None,
    output: Output,
    html: Path | None = None,
) -> int:
    """Print the verdicts of a snapshot, or write them as a page; return the exit code. Raises
    CannotAnswer and SnapshotError.
    """
    taken = file.read(path)
    stated: dict[str, object] = dict(taken.settings) if config is None else {}

    if names:
        stated["scheduler_names"] = tuple(names)

    try:
        raised: list[InternalFault] = []
        played = play(taken, load(config, stated).settings, raised.append)
    except SettingsError as error:
        raise CannotAnswer(str(error)) from error

    verdicts = played.verdicts
    if html is not None:
        write_page(html, path.name, taken, played)

    if output is not Output.TEXT:
        write_value(
            ReplayOutput(gangs=[_printed(replayed_verdict) for replayed_verdict in verdicts]),
            output,
        )
        return DONE

    start = sum(bool(replayed_verdict.starts) for replayed_verdict in verdicts)
    waiting = (
        "1 gang or plain pod waits"
        if len(verdicts) == 1
        else f"{len(verdicts)} gangs and plain pods wait"
    )
    head = f"{waiting}; {start} would start now."
    rows = [
        (
            replayed_verdict.gang,
            Cell(replayed_verdict.reason, "green" if replayed_verdict.starts else "yellow"),
            _shown(replayed_verdict),
        )
        for replayed_verdict in verdicts
    ]
    write([[Cell(head, "bold")], "", *columns(("GANG OR POD", "REASON", "MESSAGE"), rows)])

    if html is not None:
        write(["", f"{html} shows this: open it in a browser."])

    for trace in dict.fromkeys(internal_fault.trace for internal_fault in raised):
        print(trace, file=sys.stderr)

    return DONE


def write_page(html: Path, title: str, taken: file.SnapshotFile, played: Played) -> None:
    """Write the cluster with these verdicts as a page. Raises CannotAnswer and SnapshotError."""
    moment = moment_of(taken, gangs_of(played))
    for verdict in played.verdicts:
        row = moment.gangs.get(verdict.gang)
        if row is not None and verdict.starts:
            row.sentence = clean(f"Gang {verdict.gang} would start now: {_shown(verdict)}.")

    document = Document(
        source="replay",
        title=clean(title),
        made_by=__version__,
        moment=moment,
    )
    file_host.write(document, html)


def _printed(verdict: ReplayedVerdict) -> PrintedVerdict:
    return PrintedVerdict(
        gang=verdict.gang,
        plain=verdict.plain,
        reason=verdict.reason,
        message=verdict.message,
        pods={
            pod: PrintedReason(reason=reason, message=message)
            for pod, (reason, message) in verdict.pods.items()
        },
        starts=verdict.starts,
    )


def _shown(verdict: ReplayedVerdict) -> str:
    if not verdict.starts:
        return verdict.message

    nodes = sorted(set(verdict.starts.values()))
    return (
        f"{counted(len(verdict.starts), 'pod')} on"
        f" {', '.join(nodes[:5])}{' …' if len(nodes) > 5 else ''}"
    )
