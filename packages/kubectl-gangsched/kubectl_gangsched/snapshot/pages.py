"""`snapshot --html` and `replay --html`: the page as a file, of one moment or of several.

Invariant: the file is whole after every moment, so that ctrl-C loses none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gangsched import __version__
from gangsched.api.values import BadValue, parse_delay
from gangsched.console import DONE
from gangsched.model.text import counted
from gangsched.snapshots import file
from kubectl_gangsched.doctor.command import examine
from kubectl_gangsched.page import file_host
from kubectl_gangsched.page.changes import between
from kubectl_gangsched.page.document import Document, Health, Moment, PageFinding
from kubectl_gangsched.page.from_snapshot import moment_of
from kubectl_gangsched.session import CannotAnswer, Session
from kubectl_gangsched.snapshot.take import take, written
from kubectl_gangsched.terminal import clean, write

SYSTEM = "gangsched-system"
ACCOUNT = "gangsched"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to write: the page, and a snapshot of the last moment if `out` is given. Moments are
    taken `every_s` seconds for `for_s` seconds, or one if `for_s` is 0.
    """

    html: Path
    out: Path | None = None
    redact_names: bool = False
    every_s: float = 0.0
    for_s: float = 0.0


def wanted_page(
    html: Path | None,
    out: Path | None,
    every: str | None,
    lasting: str | None,
    *,
    redact_names: bool,
) -> Wanted:
    """The options of `snapshot` that are about the page. Raises CannotAnswer if they do not fit
    together.
    """
    if html is None:
        raise CannotAnswer("--every and --for are about the page: name its file with --html.")
    if (every is None) != (lasting is None):
        raise CannotAnswer("--every and --for go together, such as --every 60s --for 2h.")

    return Wanted(
        html=html,
        out=out,
        redact_names=redact_names,
        every_s=_seconds("--every", every),
        for_s=_seconds("--for", lasting),
    )


def _seconds(flag: str, text: str | None) -> float:
    if text is None:
        return 0.0

    try:
        duration_s = parse_delay(text)
    except BadValue as error:
        raise CannotAnswer(f'{flag} "{text}" {error}.') from error

    if duration_s < 1:
        raise CannotAnswer(f'{flag} "{text}" is less than a second.')

    return duration_s


def snapshot_page(
    session: Session,
    wanted: Wanted,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Take the moments and write the page after each; return the exit code. Raises Fault,
    CannotAnswer and SnapshotError.
    """
    began_s = clock()
    document: Document | None = None
    latest: Moment | None = None
    number = 0

    while True:
        taken = take(session.client, redact_names=wanted.redact_names)
        moment = moment_of(taken)
        if not wanted.redact_names:
            moment.health = health_of(session)

        if document is None or latest is None:
            title = "" if wanted.redact_names else session.client.access.context
            document = Document(source="snapshot", title=title, made_by=__version__, moment=moment)
        else:
            document.changes.append(between(latest, moment))

        latest = moment
        number += 1
        if wanted.out is not None:
            file.write(wanted.out, taken)

        file_host.write(document, wanted.html)
        next_s = began_s + number * wanted.every_s
        if not wanted.every_s or next_s > began_s + wanted.for_s:
            break

        sleep(max(0.0, next_s - clock()))

    lines = [f"{wanted.html} shows {counted(number, 'moment')}: open it in a browser."]
    write([*lines, *(written(wanted.out, taken) if wanted.out is not None else [])])
    return DONE


def health_of(session: Session) -> Health:
    """The findings of `doctor`. Raises Fault."""
    report = examine(session.client, SYSTEM, ACCOUNT)
    findings = []
    for finding in report.findings:
        findings.append(
            PageFinding(clean(finding.check), clean(finding.sentence), clean(finding.todo))
        )

    return Health(
        findings=findings,
        not_checked={clean(what): clean(why) for what, why in report.unchecked.items()},
        facts={title: clean(value) for title, value in report.facts.items()},
    )
