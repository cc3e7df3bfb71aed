"""Groups of which a part is broken: what lost members, and what a start left behind (B3, B5, Q2).

Invariant: pure functions of the views of a group's gangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from gangsched.model.gang import Gang
from gangsched.model.gpu_policy import PRODUCT_LABEL
from gangsched.model.objects import JointStart, Pod
from gangsched.model.parts import broken_part, root_of
from gangsched.model.tree import Part, required_levels


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


def heals(gangs: Sequence[Gang], root: Part) -> bool:
    """Whether the group is planned before other groups of its priority (semantics Q2): a part of it
    is broken, and only replacements wait.
    """
    waiting = [gang for gang in gangs if gang.waiting]
    if not waiting:
        return False

    # One member that replaces nobody is enough: else a gang could lose a small pod on purpose and
    # grow before all others.
    for gang in waiting:
        if not gang.replaces:
            return False

    return _is_broken(gangs, root)


def complete_starts(gangs: Sequence[Gang]) -> frozenset[JointStart]:
    """The starts of which all needed members were bound, whatever was lost since."""
    # Not a Counter, which takes most of the time for the many groups that start nothing.
    sent: dict[JointStart, int] = {}
    for gang in gangs:
        if gang.sent_with is not None:
            already = sent.get(gang.sent_with, 0)
            sent[gang.sent_with] = already + max(1, gang.permitted_min)

    return frozenset([start for start, number in sent.items() if number >= start.members])


def rest_of_start(
    gangs: Sequence[Gang],
    root: Part,
    complete: Set[JointStart] = frozenset(),
) -> frozenset[str]:
    """The gangs that a start was sent without: it was interrupted, or their binds were refused
    (semantics B3). A start that is known as `complete` was sent without nobody.

    Only proven stamps count, and only pods that existed when the start was decided: no edit and no
    new pod makes a gang the rest of another's start.
    """
    starts = {gang.together for gang in gangs} - complete
    if starts <= {None}:
        return frozenset()
    if not _is_broken(gangs, root):
        return frozenset()

    uids: set[str] = set()
    for start in starts:
        if start is not None and _sent(gangs, start) < start.members:
            uids |= _rest_of(start, gangs)

    return frozenset(uids)


def _rest_of(start: JointStart, gangs: Iterable[Gang]) -> set[str]:
    rest: set[str] = set()
    for gang in gangs:
        if not _may_be_rest(gang):
            continue
        if _youngest_s(gang) <= start.youngest_s:
            rest.add(gang.id)

    return rest


def _sent(gangs: Iterable[Gang], start: JointStart) -> int:
    """Number of members of a start that are bound, of those that it needs."""
    sent = 0
    for gang in gangs:
        if gang.together == start:
            # What one gang has above its minimum makes up for nothing that another lacks.
            needed = max(1, gang.permitted_min)
            sent += min(needed, gang.bound + gang.succeeded)

    return sent


def _youngest_s(gang: Gang) -> int:
    return max(pod.creation_s for pod in gang.unsent_pods)


def _may_be_rest(gang: Gang) -> bool:
    """Whether a start that was sent in part may lack members of this gang."""
    if not gang.unsent_pods:
        return False

    # All that its start needs has a node, and waits for its claims: the others are above the
    # minimum.
    if not gang.satisfied and gang.bound >= max(1, gang.min_member):
        return False

    # Lost members are replaced (Q2): else a gang could lose a small pod on purpose and grow before
    # all others.
    return not gang.satisfied or min(gang.unsent, gang.lacks) > 0


def is_pinned(
    gangs: Sequence[Gang],
    root: Part,
    rest: frozenset[str],
    fixes_node: Callable[[Pod], bool],
) -> bool:
    """Whether domains that what has started is in decide where the rest of the start goes, or
    claims of its pods that the start has bound: `fixes_node` knows such pods.
    """
    if not rest:
        return False

    for gang in gangs:
        if gang.id in rest and any(map(fixes_node, gang.unsent_pods)):
            return True

    labels = {gang.id: _required_by(gang) for gang in gangs}
    for required, inside in required_levels(root, labels.__getitem__):
        if required and not rest.isdisjoint(inside):
            return True

    return False


def _required_by(gang: Gang) -> list[str]:
    """The labels of all that a gang states about where its members run."""
    stated = gang.constraints
    labels = [*stated.topology]
    if stated.same_product:
        labels.append(PRODUCT_LABEL)

    for layer in stated.slices:
        labels.append(layer.topology)

    return labels


def _is_broken(gangs: Sequence[Gang], root: Part) -> bool:
    return broken_part(root_of(root, gangs), _have(gangs)) is not None


def _have(gangs: Iterable[Gang]) -> dict[str, int]:
    """What each gang that has started has; members that others bound start nothing (B4)."""
    have: dict[str, int] = {}
    for gang in gangs:
        have[gang.id] = gang.has if gang.satisfied else 0

    return have
