"""Facts about preemption: who must stop, and why nobody can (V20, V21)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gangsched.model.gang import Refusal
from gangsched.model.plan import Verdict
from gangsched.model.preemption import NotHelpful, Obstacle, Preemption
from gangsched.model.verdict_facts import Nominated
from tests import preemption_oracle as oracle
from tests.properties.facts_of.told import Told

SITUATION = "preemption"


def told(seed: int) -> Told | None:
    """A group that does not fit beside what runs."""
    draw = (oracle.case, oracle.racked_case)[seed % 2]
    case = next(oracle.cases([seed], draw), None)
    if case is None:
        return None

    verdict = case.cluster.verdicts(case.group)[case.group.id]
    return Told(verdict.told, lambda refusal: _lies(case, verdict, refusal))


def _lies(case: oracle.Case, verdict: Verdict, refusal: Refusal) -> Iterator[str]:
    if isinstance(refusal.fact, Nominated):
        yield from _of_nominated(case, verdict, refusal.fact)

    for detail in refusal.details:
        if isinstance(detail, NotHelpful):
            yield from _of_obstacle(case, detail)


def _of_nominated(case: oracle.Case, verdict: Verdict, fact: Nominated) -> Iterator[str]:
    """The members fit on these nodes once these pods have ended."""
    made = verdict.preemption
    assert isinstance(made, Preemption)
    gone = {victim.uid for victim in made.victims}
    if fact.pods != len(gone | {*made.awaited}):
        yield f"{len(gone)} pods must end, not {fact.pods}"
    if {*fact.nodes} != {placement.node for placement in made.placements}:
        yield f"it starts on other nodes than {fact.nodes}"
    if not case.fits_without(frozenset(gone)):
        yield "it does not fit even then"
    if fact.until_s < made.deadline_s:
        yield "it gives up later"

    for ending in fact.named:
        uids = {
            running.pod.uid
            for running in case.cluster.pods
            if ending.name == (running.gang or running.pod.key)
        }
        if len(uids & gone) != ending.pods:
            yield f"{len(uids & gone)} pods of {ending.name} must end, not {ending.pods}"


def _of_obstacle(case: oracle.Case, why: NotHelpful) -> Iterator[str]:
    """Whatever set of pods may be evicted, there is not room for all."""
    budgets = case.cluster.budgets
    case.cluster.budgets = []
    sets = [*case.sets()]
    case.cluster.budgets = budgets

    could_go = frozenset[str]().union(*sets)
    inside = {running.pod.uid for running in case.cluster.pods if _is_inside(case, running.node)}
    most = max(_most(case, gone) for gone in sets)
    needed = len(case.asks)
    match why.why:
        case Obstacle.NOTHING_LOWER:
            if could_go & inside:
                yield f"{len(could_go & inside)} pods could go"
        case Obstacle.TOO_LITTLE:
            yield from _too_little(case, why, len(could_go), most)
        case Obstacle.BUDGET:
            yield from _budget(case, why, len(could_go))
        case _:
            pass

    # Members of several sizes are placed one after the other, and budgets are spent on the cheapest
    # victims first, which may miss a choice; then no more is said than that none was found.
    denies = (why.why is Obstacle.TOO_LITTLE and why.room < needed) or (
        why.why is Obstacle.BUDGET and not why.pods
    )
    is_exact = why.why is Obstacle.TOO_LITTLE and len(set(case.asks)) == 1
    if (denies or is_exact) and case.best() is not None:
        yield "somebody could be preempted for it"


def _is_inside(case: oracle.Case, node: str) -> bool:
    """Whether members may use the node: those of a gang that runs stay in its rack."""
    return not case.home or case.rack_of[node] == case.rack_of[case.home]


def _too_little(case: oracle.Case, why: NotHelpful, pods: int, most: int) -> Iterator[str]:
    needed = len(case.asks)
    if why.needed != needed:
        yield f"{needed} pods are needed, not {why.needed}"
    if why.room < most:
        yield f"there would be room for {most}, not {why.room}"
    if why.pods != pods:
        yield f"{pods} pods could go, not {why.pods}"


def _budget(case: oracle.Case, why: NotHelpful, pods: int) -> Iterator[str]:
    budgets = {budget.key: budget for budget in case.cluster.budgets}
    budget = budgets.get(why.name)
    if budget is None or why.allowed != budget.allowed or why.needed <= why.allowed:
        yield f"the budget does not allow {why.allowed} of {why.needed}"
    if why.pods not in {0, pods}:
        yield f"{pods} pods could go, not {why.pods}"
    if not any(budget.allowed for budget in budgets.values()) and why.pods:
        yield "it is not known that the budgets allow no eviction at all"


def _most(case: oracle.Case, gone: frozenset[str]) -> int:
    """The largest number of its members that fit without these pods."""
    asks = case.asks
    for number in range(len(asks), 0, -1):
        for chosen in combinations(asks, number):
            case.asks = chosen
            fits = case.fits_without(gone)
            case.asks = asks
            if fits:
                return number

    return 0
