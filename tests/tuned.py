"""Constants that differ, so that a test need not wait for as long as a user does.

A constant is a field of `Rules` or of what it holds, or one of `ELSEWHERE`. As a script this is
`gangsched` with other constants: `python -P tests/tuned.py '{"avoid_s": 3}' run`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gangsched import parameters
from gangsched.kube.write.rate_limits import Rate, WriteLimits
from gangsched.settings import Settings
from gangsched.state.rule_set import Rules

PARTS = ("reservations", "preemption")
ELSEWHERE = ("podgroup_sweep_s", "object_burst", "event_burst")


def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the constants among these."""
    settings = {name: value for name, value in given.items() if name in Settings.model_fields}
    return settings, {name: value for name, value in given.items() if name not in settings}


def altered(rules: Rules, constants: Mapping[str, Any]) -> Rules:
    """`rules` with these constants; who evicts no overruns goes on so. Raises KeyError for an
    unknown name.
    """
    for name, value in constants.items():
        if name == "evict_overrun_after_s" and rules.evict_overrun_after_s is None:
            continue
        if name in _names(rules):
            rules = replace(rules, **{name: value})
            continue
        owner = next((part for part in PARTS if name in _names(getattr(rules, part))), None)
        if owner is None:
            raise KeyError(name)
        rules = replace(rules, **{owner: replace(getattr(rules, owner), **{name: value})})
    return rules


def _names(owner: Any) -> set[str]:
    return {field.name for field in fields(owner)}


@contextmanager
def tuned(constants: Mapping[str, Any]) -> Iterator[None]:
    """Daemons that start in this process meanwhile have these constants."""
    rest = {name: value for name, value in constants.items() if name not in ELSEWHERE}
    rules: Callable[[Settings], Rules] = parameters.rules
    with ExitStack() as stack:
        stack.enter_context(
            patch.object(parameters, "rules", lambda settings: altered(rules(settings), rest))
        )
        if "podgroup_sweep_s" in constants:
            stack.enter_context(
                patch("gangsched.app.PODGROUP_SWEEP_S", constants["podgroup_sweep_s"])
            )
        limits = WriteLimits()
        limits = replace(
            limits,
            object=Rate(constants.get("object_burst", limits.object.burst), limits.object.every_s),
            event=Rate(constants.get("event_burst", limits.event.burst), limits.event.every_s),
        )
        if limits != WriteLimits():
            stack.enter_context(patch.object(WriteLimits, "of", lambda _: limits))
        yield


def command(constants: Mapping[str, Any]) -> tuple[str, ...]:
    """What to run in the place of `gangsched`."""
    return (
        "env",
        "OPENBLAS_NUM_THREADS=1",
        sys.executable,
        "-P",
        str(Path(__file__).resolve()),
        json.dumps(dict(constants)),
    )


def main() -> None:
    """Run the console script."""
    from gangsched.__main__ import main as run

    constants = json.loads(sys.argv.pop(1))
    with tuned(constants):
        run()


if __name__ == "__main__":
    main()
