"""The fault matrix: whatever goes wrong, a gang of any kind starts, as a whole, and everybody is
told.

A diagonal of it runs with the other tests; `make fault-matrix` runs it all and writes a table:
FAULT_MATRIX=file, FAULT_ROWS=a regular expression for the names of rows.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import gang_kinds
from tests.faults.gang_kinds import GPUS, KINDS, NODES
from tests.faults.rows import ROWS
from tests.faults.site import Site
from tests.kwok_plane import plane_with_nodes

pytestmark = pytest.mark.e2e

TABLE = os.environ.get("FAULT_MATRIX", "")
SHORT = {
    "bind: dropped after the server applied it": "gang group",
    "bind: 409": "preempting",
    "bind: 429, Retry-After 1": "annotations",
    "other writes: 500": "preempting",
    "other writes: half a body": "PodGroup",
    "list after 410: expired continue token": "annotations",
    "watch of pods: cut within the second line": "preempting",
    "watch of pods: all lines again after each": "gang group",
    "watch of pods: garbled after a line": "PodGroup",
    "watch of PodGroups: 410": "gang group",
    "scheduler: kill -9 after a bind is applied": "preempting",
    "scheduler: SIGSTOP for 3 s": "annotations",
}
ALL = [
    (row, kind)
    for row in ROWS
    if re.search(os.environ.get("FAULT_ROWS", ""), row)
    for kind in KINDS
]
CELLS = ALL if TABLE else list(SHORT.items())
#: The longest that any fault lasts: a silent watch is given up after 30 s, and a list of PodGroups
#: comes each minute.
WITHIN_S = 100.0

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A daemon on a cluster that has room for one gang."""
    with plane_with_nodes(NODES, gpus=GPUS) as plane, Site(plane) as site:
        gang_kinds.prepare(site.api)
        site.start()
        yield site


@pytest.fixture(scope="module")
def times() -> Iterator[dict[tuple[str, str], str]]:
    """What was measured, by row and kind; written as a table at the end."""
    found: dict[tuple[str, str], str] = {}
    yield found
    if TABLE:
        Path(TABLE).write_text("\n".join(table(found)) + "\n")


def table(found: dict[tuple[str, str], str]) -> list[str]:
    """A Markdown table of one row for each fault and one column for each kind of gang."""
    lines = [f"| fault | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    rows = [row for row in ROWS if any(name == row for name, _ in found)]
    return [
        *lines,
        *(
            f"| {row} | {' | '.join(found.get((row, kind), '') for kind in KINDS)} |"
            for row in rows
        ),
    ]


@pytest.mark.parametrize(("row", "kind"), CELLS, ids=lambda each: str(each).replace(" ", "-"))
def test_a_gang_starts_as_a_whole(
    site: Site, times: dict[tuple[str, str], str], row: str, kind: str
) -> None:
    """It is bound wholly and told so, its rival has nothing and is told why, nothing was bound
    twice or too much.
    """
    name = f"g{next(numbers)}"
    cast, rival, reopened = KINDS[kind](name), gang_kinds.rival(name), False
    try:
        site.expect({**cast.expects, f"default/{name}-rival": NODES})
        if cast.before:
            site.expect({f"default/{name}-victim": len(cast.before) - 1})
            site.create(cast.before)
            site.wait_until(
                lambda: site.is_whole(f"default/{name}-victim"),
                within_s=WITHIN_S,
                what="the start before",
            )
        site.wait_until(site.hears_pod_groups, within_s=WITHIN_S, what="watches of PodGroups")
        site.quiet_for(0.2)
        met = ROWS[row](site)
        site.proxy.rules[:] = met.rules
        reopened = met.reopens
        if reopened:
            site.proxy.cut_watches()
            site.wait_until(
                lambda: site.have_struck(met.rules[:1]),
                within_s=WITHIN_S,
                what="watches to be opened again",
            )
        began_s = time.monotonic()
        site.create([*cast.gang, *rival])
        met.then(site)
        site.wait_until(
            lambda: all(map(site.is_whole, cast.expects)), within_s=WITHIN_S, what="the whole gang"
        )
        whole_s = max(site.checks.started_s(gang) or 0.0 for gang in cast.expects) - began_s
        site.wait_until(
            lambda: all(map(site.is_told, cast.pod_groups())) and site.are_refused(rival),
            within_s=WITHIN_S,
            what="everybody to be told",
        )
        told_s = time.monotonic() - began_s
        site.wait_until(
            lambda: site.have_struck(met.rules), within_s=WITHIN_S, what="the faults to strike"
        )
        assert site.wrongs() == []
        assert site.checks.bound(f"default/{name}-rival") == 0
        assert not cast.before or site.bound_now(f"{name}-victim-") == 0
    except BaseException:
        times[row, kind] = "**failed**"
        raise
    else:
        times[row, kind] = f"{whole_s:.1f} · {told_s:.1f}"
        print(f"{row} | {kind}: bound after {whole_s:.2f} s, told after {told_s:.2f} s")
    finally:
        site.clean()
        if reopened:  # a frozen one must not last into the next cell
            site.proxy.cut_watches()
