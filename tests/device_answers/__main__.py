"""Compare N random cases of SEED with kube-scheduler's module; `--write` keeps every fortieth in
the unit tests.
"""

from __future__ import annotations

import argparse
import json

from tests.device_answers import allocations, selectors
from tests.device_answers.module import ROOT

KEPT = (
    "packages/kubernetes-cel/tests/kube_answers.jsonl",
    "tests/unit/core/devices/kube_allocations.jsonl",
)


def main() -> int:
    """Print counts and differences; exit status 1 if there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.device_answers", description=(__doc__ or "").strip()
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=15_000)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    counts, rows, differences = selectors.compared(asked.seed, asked.number)
    print(
        f"{len(rows)} selectors: {dict(counts)}; {len(differences)} differ",
        *differences[:20],
        sep="\n",
    )
    counts, cases, more = allocations.compared(asked.seed, asked.number)
    print(f"{len(cases)} allocations: {dict(counts)}; {len(more)} differ", *more[:20], sep="\n")
    if asked.write:
        for path, kept in zip(KEPT, (rows[::40], cases[::40]), strict=True):
            lines = (json.dumps(row, separators=(",", ":")) + "\n" for row in kept)
            (ROOT / path).write_text("".join(lines), encoding="utf-8")
    return 1 if differences or more else 0


if __name__ == "__main__":
    raise SystemExit(main())
