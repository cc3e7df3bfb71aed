"""Groups of which a part is broken: what lost members, and what a start left behind (B3, B5, Q2).

Invariant: pure functions of the views of a group's gangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gangsched.model.gang import Gang
from gangsched.model.parts import broken_part, root_of
from gangsched.model.tree import Composite, composites_of


def below_minimum(gang: Gang) -> bool:
    """Whether the gang has started and then lost members, so that it is below its minimum
    (semantics B5).

    The minimum is that of its Permit, or the current one if that is smaller, so that raising the
    minimum breaks no gang.
    """
    return gang.lacks > 0


def broken(gang: Gang) -> bool:
    """Whether the gang is below its minimum and has waiting members (semantics Q2)."""
    return gang.waiting and below_minimum(gang)


def heals(gangs: Sequence[Gang], tree: Composite | None = None) -> bool:
    """Whether the group is planned before other groups of its priority (semantics Q2): a part of it
    is broken, and only replacements wait.
    """
    waiting = [gang for gang in gangs if gang.waiting]
    # One member that replaces nobody is enough: else a gang could lose a small pod on purpose and
    # grow before all others.
    if not waiting or not all(gang.replaces for gang in waiting):
        return False

    return broken_part(root_of(gangs, tree), _have(gangs)) is not None


def rest_of_start(gangs: Sequence[Gang], tree: Composite | None) -> frozenset[str]:
    """The gangs that a start was sent without: it was interrupted, or their binds were refused
    (semantics B3).

    Only proven stamps count, and only pods that existed when the start was decided: no edit and no
    new pod makes a gang the rest of another's start.
    """
    starts = {gang.together for gang in gangs if gang.together is not None}
    if not starts or broken_part(root_of(gangs, tree), _have(gangs)) is None:
        return frozenset()

    found: set[str] = set()
    for start in starts:
        # What one gang has above its minimum makes up for nothing that another lacks.
        had = sum(
            min(max(1, gang.permitted_min), gang.bound + gang.succeeded)
            for gang in gangs
            if gang.together == start
        )
        if had < start.members:
            waiting = (gang for gang in gangs if _may_be_rest(gang))
            found |= {
                gang.id
                for gang in waiting
                if all(pod.creation_s <= start.youngest_s for pod in gang.pending)
            }

    return frozenset(found)


def _may_be_rest(gang: Gang) -> bool:
    """Whether a start that was sent in part may lack pending members of this gang."""
    if not gang.pending:
        return False

    # Lost members are replaced (Q2): else a gang could lose a small pod on purpose and grow before
    # all others.
    return not gang.satisfied or min(gang.unsent, gang.lacks) > 0


def is_pinned(gangs: Sequence[Gang], tree: Composite | None, rest: frozenset[str]) -> bool:
    """Whether domains that what has started is in decide where the rest of the start goes."""
    if not rest:
        return False
    if tree is not None and any(composite.topology for composite in composites_of(tree)):
        return True

    # A group has one domain, which any gang of it may require.
    stated = [gang.constraints for gang in gangs if tree is None or gang.id in rest]
    return any(
        placement_constraints.topology
        or placement_constraints.same_product
        or placement_constraints.slices
        for placement_constraints in stated
    )


def _have(gangs: Iterable[Gang]) -> dict[str, int]:
    """What each gang that has started has; members that others bound start nothing (B4)."""
    return {gang.id: gang.bound + gang.succeeded if gang.satisfied else 0 for gang in gangs}
