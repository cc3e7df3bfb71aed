"""Facts about trees: which children are ready, and which cannot be placed (I9)."""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.model.gang import Refusal
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import ChildrenMissing, NoChoice, WaitsForSibling
from tests.properties.facts_of.told import Told
from tests.properties.tree_gangs import SETTLED_S, Choices, TreePart, TreePlay

SITUATION = "trees"


def told(seed: int) -> Told | None:
    """A tree of which perhaps some members are late; one of three must be packed."""
    play = TreePlay(seed if seed % 2 else seed * 3)
    play.begin()
    play.world.advance(SETTLED_S)
    if play.world.bound().keys() & play.created:
        return None

    gangs = [part for part in play.case.tree.every() if part.members]
    group = play.world.state.registry.group_of.get(f"ns/{gangs[0].name}", "")
    record = play.world.state.registry.groups.get(group)
    if record is None or record.verdict is None or play.case.tree.needs_nothing():
        return None

    refusal = record.verdict.told
    if refusal.reason is Reason.SCHEDULED:
        return None

    return Told(refusal, lambda changed: lies(play, changed))


def lies(play: TreePlay, refusal: Refusal) -> Iterator[str]:
    """What is false in a refusal of the tree while nothing of it runs."""
    fact = refusal.fact
    if isinstance(fact, WaitsForSibling):
        yield from lies(play, fact.cause)
        return

    parts = {part.name: part for part in play.case.tree.every()}
    nodes = frozenset(range(len(play.case.gpus)))
    free = play.free({})

    def fits(part: TreePart) -> bool:
        choices = Choices(play.case)
        return bool(choices.after(part, free, nodes, play.created))

    if refusal.reason is Reason.UNSCHEDULABLE and fits(play.case.tree):
        yield "the tree fits"

    if isinstance(fact, ChildrenMissing):
        part = parts.get(fact.composite.rpartition("/")[2])
        if part is None:
            yield f"there is no composite {fact.composite}"
            return

        ready = sum(_is_ready(child, play.created) for child in part.children)
        if (fact.ready, fact.minimum) != (ready, part.least):
            yield f"{ready} of {part.least} are ready, not {fact.ready} of {fact.minimum}"
        named = parts.get(fact.part.rpartition("/")[2])
        if fact.part and (named is None or _is_ready(named, play.created)):
            yield f"{fact.part} is ready"

    if isinstance(fact, NoChoice):
        part = parts.get(fact.composite.rpartition("/")[2])
        if part is None:
            yield f"there is no composite {fact.composite}"
            return

        # Children that need nothing count as placed.
        placed = sum(child.needs_nothing() for child in part.children)
        ready = sum(
            _is_ready(child, play.created) and not child.needs_nothing() for child in part.children
        )
        lack = part.least - placed
        if (fact.ready, fact.lack) != (ready, lack):
            yield f"{lack} of {ready} are needed, not {fact.lack} of {fact.ready}"
        if fact.proven and fits(part):
            yield f"a choice of the children of {part.name} fits"


def _is_ready(part: TreePart, created: set[str]) -> bool:
    """Whether enough members of the part exist."""
    if not part.children:
        return sum(name in created for name in part.members) >= part.least

    return sum(_is_ready(child, created) for child in part.children) >= part.least
