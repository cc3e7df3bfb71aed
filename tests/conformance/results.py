"""What a run of the specs came to: a report of Ginkgo in JSON as one outcome a spec.

Invariant: an outcome is what Ginkgo says of the spec. A spec that the run was not asked for has
none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

SPECS_IN = "/test/e2e/scheduling/"
"""Packages that these specs import bring specs of their own, of the kubelet or of the API: not of
scheduling.
"""
NANOSECONDS = 1e9
_TAG = re.compile(r"\s*\[[^\[\]]*\]")


class State(StrEnum):
    """How a spec ended; a spec skips itself where the cluster lacks what it needs."""

    PASSES = "passes"
    FAILS = "fails"
    SKIPS = "skips"


@dataclass(frozen=True)
class Outcome:
    """How a spec ended, after how long, and what it says if it did not pass."""

    state: State
    seconds: float
    message: str = ""


Outcomes = Mapping[str, Outcome]


def read_report(text: str) -> dict[str, Outcome]:
    """The outcomes by spec. Raises ValueError for two specs of one name, or a state that is not
    known.
    """
    outcomes: dict[str, Outcome] = {}
    for suite in json.loads(text):
        for report in suite.get("SpecReports") or ():
            if (
                report.get("LeafNodeType") != "It"
                or SPECS_IN not in report["LeafNodeLocation"]["FileName"]
            ):
                continue
            message = (report.get("Failure") or {}).get("Message", "")
            state = _state(report["State"])
            if state is State.SKIPS and not message:
                continue  # not asked for: a spec that skips itself says why
            name = spec_name(report)
            if name in outcomes:
                raise ValueError(f"Two specs are called {name!r}.")
            outcomes[name] = Outcome(state, round(report["RunTime"] / NANOSECONDS, 1), message)
    return outcomes


def spec_name(report: Mapping[str, Any]) -> str:
    """The texts of a spec, from the outside in, without the tags in brackets."""
    words = [*(report.get("ContainerHierarchyTexts") or ()), report["LeafNodeText"]]
    return _TAG.sub("", " ".join(words)).strip()


def _state(word: str) -> State:
    match word:
        case "passed":
            return State.PASSES
        case "failed" | "timedout" | "panicked" | "interrupted" | "aborted":
            return State.FAILS
        case "skipped" | "pending":
            return State.SKIPS
    raise ValueError(f"Ginkgo calls the state of a spec {word!r}, which is not known here.")


def load(path: Path) -> dict[str, Outcome]:
    """The outcomes that `save` wrote; none without the file."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    return {
        name: Outcome(**{**fields, "state": State(fields["state"])})
        for name, fields in stored.items()
    }


def save(path: Path, outcomes: Outcomes) -> None:
    """Keep the outcomes for the next part of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({name: asdict(outcomes[name]) for name in sorted(outcomes)}, indent=1) + "\n"
    )
