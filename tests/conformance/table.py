"""The table spec → gangsched → kube-scheduler, and which of its rows have a reason
(`differences.toml`).

Invariant: every spec that does not pass with both has a reason, and every reason has such a spec,
with the outcomes that it was written for. So a fixed difference leaves the file, and a new one is
never taken for a known one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.results import Outcomes, State

HERE = Path(__file__).parent
DIFFERENCES = HERE / "differences.toml"
MANUAL = HERE / "README.md"
PAGE = HERE.parents[1] / "bench" / "results" / "conformance.md"
GANGS = ("GangScheduling ", "WorkloadAwarePreemption ")
"""The specs of these containers are of gangs."""
_TABLE = re.compile(r"(?s)(<!-- conformance[^\n]*-->\n).*?(\n<!-- end of conformance -->)")


@dataclass(frozen=True)
class Difference:
    """Why a spec does not pass in both; `ours` and `theirs` are the outcomes that
    `why` explains.
    """

    ours: State
    theirs: State
    why: str


@dataclass(frozen=True)
class Row:
    """One spec; `why` is empty where it passes in both, or where nobody has said why not."""

    spec: str
    ours: State
    theirs: State
    why: str = ""

    @property
    def passes_in_both(self) -> bool:
        """Whether there is nothing to explain."""
        return self.ours is self.theirs is State.PASSES


def read_differences(text: str) -> dict[str, Difference]:
    """The known differences by spec. Raises ValueError for one that is not whole."""
    known: dict[str, Difference] = {}
    for entry in tomllib.loads(text).get("difference", ()):
        spec, why = str(entry.get("spec", "")), " ".join(str(entry.get("why", "")).split())
        if not spec or not why or spec in known:
            raise ValueError(f"A difference needs a spec of its own and a reason: {entry}.")
        known[spec] = Difference(State(entry["ours"]), State(entry["theirs"]), why)
    return known


def rows(ours: Outcomes, theirs: Outcomes, known: Mapping[str, Difference]) -> list[Row]:
    """The specs that both ran, in the order of their names."""
    made = []
    for spec in sorted(ours.keys() & theirs.keys()):
        row = Row(spec, ours[spec].state, theirs[spec].state)
        reason = known.get(spec)
        if (
            reason is not None
            and not row.passes_in_both
            and (reason.ours, reason.theirs) == (row.ours, row.theirs)
        ):
            row = Row(row.spec, row.ours, row.theirs, reason.why)
        made.append(row)
    return made


def complaints(ours: Outcomes, theirs: Outcomes, known: Mapping[str, Difference]) -> Iterator[str]:
    """What keeps a run from being sound, a sentence each; `known` may hold specs of other parts of
    the run.
    """
    for spec in sorted(ours.keys() ^ theirs.keys()):
        yield f"{spec}: only run with {'gangsched' if spec in ours else 'kube-scheduler'}."
    for row in rows(ours, theirs, known):
        reason = known.get(row.spec)
        if not row.passes_in_both and not row.why:
            yield (
                f"{row.spec}: {row.ours} with gangsched and {row.theirs} with kube-scheduler, for"
                " no known reason."
            )
        elif row.passes_in_both and reason is not None:
            yield f"{row.spec}: passes in both, but {DIFFERENCES.name} still has a reason why not."


def unheard_of(ours: Outcomes, known: Mapping[str, Difference]) -> Iterator[str]:
    """A sentence for each reason whose spec is not in the suite; only of use after a whole run."""
    for spec in sorted(known.keys() - ours.keys()):
        yield f"{spec}: {DIFFERENCES.name} has a reason for it, but there is no such spec."


def summary(table: list[Row]) -> str:
    """The counts, as one sentence."""
    needed = [row for row in table if row.theirs is State.PASSES]
    both = sum(row.ours is State.PASSES for row in needed)
    gangs = [row for row in table if row.spec.startswith(GANGS)]
    of_gangs = sum(row.ours is State.PASSES for row in gangs)
    return (
        f"Of {len(table)} specs kube-scheduler passes {len(needed)}, and gangsched {both} of these;"
        f" of the {len(gangs)} specs of gangs gangsched passes {of_gangs}."
    )


def markdown(table: list[Row]) -> str:
    """The table as it is in the manual."""
    lines = ["| spec | gangsched | kube-scheduler | reason |", "|---|---|---|---|"]
    lines += [f"| {row.spec} | {row.ours} | {row.theirs} | {row.why} |" for row in table]
    return "\n".join(lines)


def with_table(page: str, table: list[Row]) -> str:
    """The page with this table in place of the one it has."""
    text = f"{summary(table)}\n\n{markdown(table)}"
    made, count = _TABLE.subn(lambda found: f"{found[1]}{text}{found[2]}", page)
    if count != 1:
        raise ValueError("The page has no single place for the table.")
    return made


def rows_of(page: str) -> list[Row]:
    """The rows that a page shows."""
    found = _TABLE.search(page)
    cells = [
        line.strip("|").split("|")
        for line in (found[0] if found else "").splitlines()
        if line.startswith("| ")
    ]
    return [
        Row(spec.strip(), State(ours.strip()), State(theirs.strip()), why.strip())
        for spec, ours, theirs, why in cells[1:]
    ]
