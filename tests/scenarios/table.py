"""Reads the tables: YAML in, checked scenarios out.

Invariant: an unknown word is an error that names the scenario; names are unique over all files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).parent
RULES: Final = (
    *(f"I{n}" for n in (*range(1, 7), 9)),
    *(f"Q{n}" for n in range(1, 6)),
    *(f"P{n}" for n in range(1, 5)),
    "F1",
    *(f"R{n}" for n in range(1, 5)),
    *(f"B{n}" for n in range(1, 9)),
    *(f"T{n}" for n in range(1, 4)),
    "D1",
    "D2",
    *(f"H{n}" for n in (*range(1, 10), *range(11, 15), 16)),
    *(f"V{n}" for n in (*range(1, 15), *range(16, 23), 24, 27, 28)),
    *(f"L{n}" for n in (3, 4, 5, 6, 8)),
    *(f"E{n}" for n in (*range(1, 5), 8, 9, 10)),
    *(f"A{n}" for n in range(2, 6)),
    *(f"O{n}" for n in (*range(1, 5), *range(6, 9))),
)
VERBS: Final = frozenset(
    {
        "create",
        "create_interleaved",
        "delete",
        "edit",
        "finish",
        "reject",
        "die",
        "provision",
        "refuse_binds",
        "while_binding",
        "restart",
        "wait",
        "stream",
        "stop",
        "recreate",
        "while_evicting",
        "crash_after",
        "expect",
    }
)
KEYS: Final = frozenset(
    {"scenario", "rules", "nodes", "steps", "never_bound", "virtual_only", "settings"}
)
SHORTEST, LONGEST = 8, 100
LONGEST_SLUG = 40


class TableError(ValueError):
    """A table that cannot be played; `str()` names the file and the scenario."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens (`verb`) and to what; `within_s` is how long an expectation
    may take.
    """

    verb: str
    what: Any
    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. `virtual_only` is the reason why it cannot be played for real; "" when it can.

    `settings` are those of the scheduler that differ from the defaults, and constants
    (`tests.tuned`), by name.
    """

    name: str
    file: str
    rules: tuple[str, ...]
    nodes: Mapping[str, Mapping[str, Any]]
    steps: tuple[Step, ...]
    never_bound: tuple[str, ...] = ()
    virtual_only: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The namespace it is played in: unique, and readable in messages."""
        words = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return words[:LONGEST_SLUG].rstrip("-")

    @property
    def restarts(self) -> bool:
        """Whether the daemon is restarted, so that no other scenario may run meanwhile."""
        return any(step.verb == "restart" for step in self.steps)


def load(folder: Path = FOLDER) -> list[Scenario]:
    """All scenarios, by file and in the order written. Raises TableError."""
    scenarios = [scenario for path in sorted(folder.glob("*.yaml")) for scenario in _read(path)]
    seen: dict[str, Scenario] = {}
    for scenario in scenarios:
        if (other := seen.get(scenario.slug)) is not None:
            raise TableError(
                f"{scenario.file} and {other.file}: two scenarios become {scenario.slug}."
            )
        seen[scenario.slug] = scenario
    return scenarios


def by_rule(scenarios: list[Scenario]) -> dict[str, list[str]]:
    """Rule → names of the scenarios that prove it, every rule in the order of the semantics."""
    return {
        rule: [scenario.name for scenario in scenarios if rule in scenario.rules] for rule in RULES
    }


def _read(path: Path) -> Iterator[Scenario]:
    for entry in yaml.load(path.read_text(), yaml.CSafeLoader) or []:
        where = f"{path.name}: {entry.get('scenario', '(a scenario without a name)')!r}"
        if unknown := entry.keys() - KEYS:
            raise TableError(f"{where}: unknown {', '.join(sorted(unknown))}.")
        name, rules = entry.get("scenario", ""), tuple(entry.get("rules", ()))
        if not SHORTEST <= len(name) <= LONGEST:
            raise TableError(f"{where}: a name has {SHORTEST} to {LONGEST} characters.")
        if not rules or (unknown := set(rules) - set(RULES)):
            raise TableError(
                f"{where}: it must name rules of the semantics, not"
                f" {sorted(unknown) if rules else []}."
            )
        yield Scenario(
            name,
            path.name,
            rules,
            entry.get("nodes", {}),
            tuple(_steps(entry.get("steps", ()), where)),
            tuple(entry.get("never_bound", ())),
            entry.get("virtual_only", ""),
            entry.get("settings", {}),
        )


def _steps(entries: list[dict[str, Any]], where: str) -> Iterator[Step]:
    if not entries:
        raise TableError(f"{where}: it has no steps.")
    for entry in entries:
        words = dict(entry)
        within_s = words.pop("within", None)
        if len(words) != 1 or (verb := next(iter(words))) not in VERBS:
            raise TableError(
                f"{where}: a step is one of {', '.join(sorted(VERBS))}, not {sorted(words)}."
            )
        if within_s is not None and verb != "expect":
            raise TableError(f"{where}: only an expectation has a `within`.")
        yield Step(verb, words[verb], within_s)
