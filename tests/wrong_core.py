"""A core that is wrong about one group: what it gets wrong in the plans of the tree `svc`, and
nothing else.

`FAULTS` are for the gangs a and b of one pod each on nodes n0 and n1 of a rack, n2 of another one,
and n3, which is small. `tests/mutants/site` plants one into a daemon that has `WRONG_CORE` in its
environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import structs

from gangsched import turn
from gangsched.core import cycle
from gangsched.model.gang import Placement
from gangsched.model.plan import Plan, Verdict
from tests.builders import pod

Change = Callable[[Verdict], Verdict]


def of_binds(change: Callable[[Sequence[Placement]], Iterable[Placement]]) -> Change:
    """Change the binds of verdicts that have some."""
    return lambda verdict: (
        structs.replace(verdict, binds=tuple(change(verdict.binds))) if verdict.binds else verdict
    )


def moved(**nodes: str) -> Change:
    """Place pods, by their names with _ for -, on other nodes."""
    where = {name.replace("_", "-"): at for name, at in nodes.items()}
    return of_binds(
        lambda binds: [
            msgspec.structs.replace(each, node=where.get(each.pod.name, each.node))
            for each in binds
        ]
    )


def without(*names: str) -> Change:
    """Do not place these pods."""
    return of_binds(lambda binds: [each for each in binds if each.pod.name not in names])


def twice(verdict: Verdict) -> Verdict:
    """A pod on two nodes."""
    return structs.replace(
        verdict, binds=(*verdict.binds, msgspec.structs.replace(verdict.binds[0], node="n2"))
    )


def everything_on(name: str) -> Change:
    """All pods on one node."""
    return of_binds(lambda binds: [msgspec.structs.replace(each, node=name) for each in binds])


def another_device(verdict: Verdict) -> Verdict:
    """All claims get the device of the first."""
    first = verdict.binds[0].claims
    given = [
        msgspec.structs.replace(each.claims[0], allocation=first[0].allocation)
        for each in verdict.binds
    ]
    return structs.replace(
        verdict,
        binds=tuple(
            msgspec.structs.replace(each, claims=(one,))
            for each, one in zip(verdict.binds, given, strict=True)
        ),
    )


def a_foreign_pod(verdict: Verdict) -> Verdict:
    """A pod of nobody."""
    return structs.replace(
        verdict, binds=(*verdict.binds, Placement(pod("foreign", scheduler_name="other"), "n2"))
    )


FAULTS: dict[str, Change] = {
    "a pod twice": twice,
    "half a tree": without("b-0"),
    "a level left": moved(a_0="n0", b_0="n2"),
    "a node over-full": everything_on("n3"),
    "a port twice": everything_on("n1"),
    "a device twice": another_device,
    "a foreign pod": a_foreign_pod,
    "an unknown node": everything_on("n9"),
}


def wrong(fault: Change) -> Callable[..., Plan]:
    """A core that plans the tree wrongly, and all others as they are."""

    def changed(verdict: Verdict) -> Verdict:
        is_it = verdict.group.endswith("/svc") and len(verdict.binds) == 2
        return fault(verdict) if is_it else verdict

    def plan(*given: Any, **stated: Any) -> Plan:
        right = cycle.plan(*given, **stated)
        return replace(right, verdicts=tuple(map(changed, right.verdicts)))

    return plan


def plant(name: str) -> None:
    """Put the core with this fault into this process."""
    vars(turn)["plan"] = wrong(FAULTS[name])
