"""`python -m tests.scenarios --rules`: which scenarios prove which rule."""

from __future__ import annotations

import argparse
import sys

from tests.scenarios.table import TableError, by_rule, load


def main() -> int:
    """Print the table; 1 when a rule has no scenario or a file cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument(
        "--rules", action="store_true", help="rule → scenarios (otherwise: file → scenarios)"
    )
    arguments = parser.parse_args()
    try:
        scenarios = load()
    except TableError as error:
        print(error, file=sys.stderr)
        return 1
    if not arguments.rules:
        for scenario in scenarios:
            where = " (virtual)" if scenario.virtual_only else ""
            print(f"{scenario.file}: {scenario.name} [{', '.join(scenario.rules)}]{where}")
        return 0
    print("| rule | scenarios |\n|---|---|")
    table = by_rule(scenarios)
    for rule, names in table.items():
        print(f"| {rule} | {' · '.join(names) or '**none**'} |")
    real = sum(not scenario.virtual_only for scenario in scenarios)
    print(f"\n{len(scenarios)} scenarios, {real} of them also on a real API server.")
    return 0 if all(table.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
