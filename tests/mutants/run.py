"""Plant each bug in the processes of its tests, and see that one fails: `python -m
tests.mutants.run [WORD]`.

Exit status 1 when a mutant survives, or when the tests fail without any. With WORD only mutants
whose name contains it. `--part 2/5` plants the second fifth; what was found is kept in
`.cache/mutants.json` until a first part begins anew. When all were planted the table of README.md
is written, which says by what kind of test each was found; nothing else of the checkout is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.mutants.planted import MUTANTS

ROOT = Path(__file__).parent.parent.parent
PAGE = Path(__file__).with_name("README.md")
FOUND = ROOT / ".cache" / "mutants.json"
SITE = Path(__file__).with_name("site")
Row = tuple[str, str, str, str]
"""Rule, planted bug, kind of test, test."""
KINDS = {
    "tests/unit/state/test_validate.py": "validate",
    "tests/unit/simulate": "simulation",
    "tests/unit": "unit",
    "packages": "unit",
    "tests/properties": "properties",
    "tests/scenarios": "scenario",
    "tests/faults": "faults",
    "tests/sim": "histories",
}
"""What kind of test a mutant was found by; the first entry that begins the test's path counts."""
LONGEST_S = 120.0


def main() -> int:
    """Run all, print the table mutant → failing test."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.run", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "word", nargs="?", default="", help="plant only bugs whose name contains it"
    )
    parser.add_argument("--part", default="1/1", help="the second fifth is 2/5")
    asked = parser.parse_args()
    number, parts = map(int, asked.part.split("/"))
    chosen = [mutant for mutant in MUTANTS if asked.word in mutant.name][number - 1 :: parts]
    if not chosen:
        parser.error(f"no planted bug has {asked.word!r} in its name")
    console = Console(width=150)
    table = Table(
        "rule", "planted bug", "kind", "found by", "s", title=f"{len(chosen)} planted bugs"
    )
    survived, rows = list[str](), list[Row]()
    if (failing := first_failure(*sorted({mutant.tests for mutant in chosen}))) is not None:
        console.print(f"[red]without any planted bug {failing} fails[/]")
        return 1
    for mutant in chosen:
        began_s = time.monotonic()
        found = first_failure(mutant.tests, mutant=mutant.name)
        if found is None:
            survived.append(mutant.name)
        kind, test = (kind_of(found), found.split("::", 1)[-1]) if found else ("", "nothing")
        rows.append((mutant.rule, mutant.name, kind, test))
        table.add_row(*rows[-1], f"{time.monotonic() - began_s:.1f}")
        console.print(f"{len(rows)} of {len(chosen)}: {mutant.name}: {test}")
    console.print(table)
    if not asked.word:
        keep(rows, anew=number == 1)
    for name in survived:
        console.print(f"[red]survived: {name}[/]")
    return 1 if survived else 0


def keep(rows: Sequence[Row], *, anew: bool) -> None:
    """Keep what was found, and write the page once every mutant was planted."""
    kept = {} if anew or not FOUND.exists() else json.loads(FOUND.read_text())
    kept |= {row[1]: row for row in rows}
    FOUND.parent.mkdir(exist_ok=True)
    FOUND.write_text(json.dumps(kept, indent=1))
    if all(mutant.name in kept for mutant in MUTANTS):
        PAGE.write_text(page([(*kept[mutant.name],) for mutant in MUTANTS]))


def kind_of(test: str) -> str:
    """The kind of a test by its path: unit, properties, scenario, …"""
    path = os.path.normpath(test)
    return next((kind for start, kind in KINDS.items() if path.startswith(start)), "other")


def page(rows: Sequence[Row]) -> str:
    """The page with the table of rule, planted bug, kind of test and test."""
    kinds = Counter(kind for _, _, kind, _ in rows if kind)
    found = ", ".join(f"{number} by {kind}" for kind, number in kinds.most_common())
    lines = [
        f"| {rule} | {name} | {kind} | {f'`{test}`' if kind else 'nothing'} |"
        for rule, name, kind, test in rows
    ]
    return (
        "# Planted bugs\n\nA planted bug puts something that behaves wrongly in the place of one"
        " function or constant, which it names;\nhow it behaves then is its own name (`mutant.py`,"
        " `planted_*.py`). `make mutants` plants one at a time into\nthe processes of the tests"
        " beside it, and writes this table: the first test that fails. A bug is looked for\nonly"
        f" where it must be found, so that others may find it as well.\n\n{sum(kinds.values())} of"
        f" {len(rows)} are found: {found}.\n\n| rule | planted bug | kind | found by"
        " |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def first_failure(*tests: str, mutant: str = "") -> str | None:
    """The first of these tests that fails, or ends too late, beside this mutant; None when all
    pass.
    """
    path = os.pathsep.join((str(SITE), str(ROOT)))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "", "MUTANT": mutant}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += [f"tests/{each}" for each in tests]
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=LONGEST_S if mutant else None,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"tests/{tests[0]}::(did not end)"
    if ended.returncode == 0:
        return None
    lines = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if not lines:
        sys.exit(f"The tests did not run: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return lines[0].split(maxsplit=1)[1].split(" - ")[0]


if __name__ == "__main__":
    sys.exit(main())
