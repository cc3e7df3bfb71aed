"""Headlines as users read them, drawn from all scenarios: `make headlines SEED=7` prints 100.

Each scenario is played on the virtual clock. The first sentence of each condition and Event that
was written is a headline; those that differ in numbers alone are drawn once.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from gangsched.model.protocol import RecordEvent, SetPodCondition, SetPodGroupStatus
from tests.scenarios.play import play
from tests.scenarios.table import Scenario, load
from tests.scenarios.virtual import VirtualCluster

LONGEST = 160


class Recording(VirtualCluster):
    """A cluster that remembers what was written."""

    def __init__(self, scenario: Scenario) -> None:
        self.texts: dict[str, str] = {}
        super().__init__(one_by_one=True, settings=scenario.settings)

    def _write(self, report: Any) -> None:
        """Remember the texts of a report."""
        for where, text in texts_of(report):
            self.texts.setdefault(text, where)

        super()._write(report)


def texts_of(order: Any) -> Iterator[tuple[str, str]]:
    """Where an order writes a text, and the text."""
    match order:
        case RecordEvent(reason=reason, message=message):
            yield f"Event {reason}", message
        case SetPodCondition(reason=reason, message=message):
            yield f"pod {reason}", message
        case SetPodGroupStatus(status=status):
            conditions: Any = status.get("conditions", [])
            for condition in conditions:
                where = f"{condition['type']}={condition['status']} {condition['reason']}"
                yield where, condition.get("message", "")


def headline(text: str) -> str:
    """The first sentence, without where the counts are."""
    first = re.split(r"\. (?=[A-Z0-9])", text, maxsplit=1)[0]
    return re.sub(r"; see (?:pod|[A-Z]\w+) \S+$", "", first)


def written() -> Mapping[str, str]:
    """Where each headline of the scenarios is written first; one for each form of words."""
    forms: dict[str, tuple[str, str]] = {}
    for scenario in load():
        cluster = Recording(scenario)
        play(scenario, cluster)
        for text, where in cluster.texts.items():
            # The namespace and nodes begin with the scenario's name, which is a long one.
            short = re.sub(rf"{scenario.slug}(-\w+)?/", "ml/", text)
            first = headline(short.replace(f"{scenario.slug}.", ""))
            forms.setdefault(re.sub(r"\d+", "0", first), (first, where))

    return {first: where for first, where in forms.values() if first}


def drawn(seed: int, number: int) -> list[tuple[str, str]]:
    """So many of them, chosen by the seed, each with where it is written."""
    headlines = sorted(written().items())
    return sorted(Random(seed).sample(headlines, min(number, len(headlines))))


def main() -> None:
    """Print them with their length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=100)
    given = parser.parse_args()
    chosen = drawn(given.seed, given.number)

    for first, where in chosen:
        print(f"{len(first):4} {where}: {first}")

    long = [first for first, _ in chosen if len(first) > LONGEST]
    print(f"seed {given.seed}: {len(chosen)} headlines, {len(long)} of more than {LONGEST} letters")


if __name__ == "__main__":
    main()
