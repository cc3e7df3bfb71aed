"""Facts: refuted packings, identified by content, and packings that a plan did not finish.

Invariant: a fact stays true whatever changes in the cluster, because it is about numbers, not about
nodes. Dropping a fact costs only work.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from gangsched.core.reserve import Ledger
from gangsched.core.search.packing import Packing
from gangsched.core.search.packing_problem import PackingProblem, Pattern

# A digest of 16 bytes each (decision 0072).
MAX_FACTS = 100_000
MAX_UNDER_WAY = 16
"""Packings under way that are kept: each remembers what it refuted."""

UNDER_WAY = b"under way"
REFUTED_DEMANDS = b"refuted demands"
"""Under these names the packings under way, and of which pieces and needs any was refuted; all
other names are of packings that were refuted.
"""
MAX_DEMANDS = 1_000


def packed(
    problem: PackingProblem,
    ledger: Ledger,
    most: float = inf,
    *,
    most_in_all: float = inf,
) -> Packing | None:
    """A packing of a problem; None if there is none, or if none is found within `most` choices.

    Raises OutOfWork; the next plan then continues, until all plans together have made `most_in_all`
    choices.
    """
    if known(problem, ledger) is False:
        return None

    facts = ledger.table.packings
    name = problem.name
    under_way: dict[bytes, Packing] = facts.setdefault(UNDER_WAY, {})

    # pop and insert: the dict stays in the order of use, and the oldest is dropped.
    packing = under_way.pop(name, None) or Packing(problem)
    packing.problem = problem  # the same numbers; its nodes may be called otherwise
    before = packing.choices
    found: bool | None = None

    try:
        found = packing.run(ledger.work, min(most, most_in_all - before))
    finally:
        # Also when work ran out: a decision ends after 2,000,000 choices in all its plans.
        ledger.work.choices += packing.choices - before
        if found is not False:  # places that were found are wanted again when they are reserved
            if len(under_way) >= MAX_UNDER_WAY:
                del under_way[next(iter(under_way))]

            under_way[name] = packing

    if found is False:
        facts[name] = True
        if len(facts) > MAX_FACTS:
            # The two tables are values of this dict, too, and never dropped.
            del facts[next(fact for fact in facts if fact not in (UNDER_WAY, REFUTED_DEMANDS))]

        demands: dict[tuple[Pattern, Sequence[int]], bool] = facts.setdefault(REFUTED_DEMANDS, {})
        # Only a hint: without it, no problem need be built just to look up that it was refuted.
        demands[problem.start, tuple(problem.needs)] = True
        if len(demands) > MAX_DEMANDS:
            del demands[next(iter(demands))]

    return packing if found else None


def is_refuted_somewhere(start: Pattern, needs: Sequence[int], ledger: Ledger) -> bool:
    """Whether a packing with the same pieces and needs was refuted before, on any nodes."""
    return (start, tuple(needs)) in ledger.table.packings.get(REFUTED_DEMANDS, {})


def is_used_somewhere(start: Pattern, needs: Sequence[int], ledger: Ledger) -> bool:
    """Whether a packing with the same pieces and needs was used before, on any nodes."""
    used = (
        each.problem for each in ledger.table.packings.get(UNDER_WAY, {}).values() if each.is_used
    )
    return any((each.start, each.needs) == (start, tuple(needs)) for each in used)


def known(problem: PackingProblem, ledger: Ledger) -> Packing | bool | None:
    """False if the packing was refuted before; the packing if it was used before;
    None otherwise.
    """
    facts = ledger.table.packings
    name = problem.name
    if name in facts:
        facts[name] = facts.pop(name)  # used last, so that it is forgotten last
        return False

    packing: Packing | None = facts.get(UNDER_WAY, {}).get(name)
    if packing is None or not packing.is_used:
        return None

    # The nodes of this plan: equal numbers, but perhaps on other nodes than when the packing was
    # found.
    packing.problem = problem
    return packing
