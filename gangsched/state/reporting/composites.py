"""The status of CompositePodGroups and of PodGroups with sub groups, derived from the decisions
about their trees (semantics E3, I9).

Invariant: pure functions. Kubernetes defines one condition, which never changes back from True
(KEP-6012). A kind with phases also gets its phase and the counts of all pods below it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.api.dialects import DIALECTS
from gangsched.api.podgroup import (
    PodGroupPhase,
    PodGroupStatus,
    scheduled_condition,
    stored_conditions,
    with_condition,
)
from gangsched.model.gang import Refusal
from gangsched.model.objects import PodGroup
from gangsched.model.parts import in_gangs, is_whole, whole_children
from gangsched.model.reasons import Reason
from gangsched.model.text import counted, is_or_are
from gangsched.model.tree import Composite, composites_of, gangs_of, least_members
from gangsched.sentences import say
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.reporting.gang_phase import Life, phase, together
from gangsched.state.reporting.reservation_reports import Fact
from gangsched.state.reporting.status import as_conditions, life_of, with_phase

INVALID = "Invalid"
"""The reason that Kubernetes defines for a tree with a fault."""


def composites(group: GroupRecord, registry: Registry) -> Iterator[tuple[str, Composite | None]]:
    """By id, the composites with an object for the report about a group: those that it has, and the
    ones above a refused gang.
    """
    named: dict[str, Composite | None] = {}
    for composite in composites_of(group.root):
        named[composite.id] = composite

    # A tree with a fault is not formed: each of its gangs is a group of its own, below the same
    # objects.
    for above in registry.above(group.gangs[0]):
        named.setdefault(above, None)

    for name, part in named.items():
        record = registry.gangs.get(name)
        pod_group = record.pod_group if record is not None else None
        if pod_group is not None and pod_group.is_composite and pod_group.speaks:
            yield name, part


def status(
    pod_group: PodGroup,
    composite: Composite | None,
    group: GroupRecord,
    registry: Registry,
    wall: str,
) -> dict[str, object] | None:
    """The status to store, as JSON of a strategic merge patch; None if it need not change."""
    kind = scheduled_condition(pod_group.api_group, pod_group.version)
    if (phases := DIALECTS[pod_group.api_group].phases) is not None:
        fact = as_conditions({kind: _fact(composite, group, registry)}, pod_group, wall)
        conditions = with_condition(stored_conditions(pod_group.status), *fact)

        if composite is None:  # refused, so that each gang of it is another group
            return {"phase": phases[PodGroupPhase.PENDING]} | PodGroupStatus(
                conditions=conditions
            ).to_dict()

        life = _life(composite, registry)
        return with_phase(life.count, phases[phase(life)], conditions)

    own = [condition for condition in stored_conditions(pod_group.status) if condition.type == kind]
    # Once True it stays so (KEP-6012), whatever the tree loses later.
    if any(condition.status == "True" for condition in own):
        return None

    (new,) = as_conditions({kind: _fact(composite, group, registry)}, pod_group, wall)
    return PodGroupStatus(conditions=with_condition(own, new)).to_dict()


def _life(composite: Composite, registry: Registry) -> Life:
    """What the phase of a whole tree depends on: the members of all of its gangs, and its
    minimum.
    """
    lives = []
    for gang_id in gangs_of(composite):
        lives.append(life_of(registry.gangs[gang_id], registry.view(gang_id)))

    needed = least_members(composite, lambda gang: registry.view(gang).min_member)
    return Life(
        count=together(life.count for life in lives),
        min_member=needed,
        is_binding=any(life.is_binding for life in lives),
        is_waiting=any(life.is_waiting for life in lives),
    )


def _fact(composite: Composite | None, group: GroupRecord, registry: Registry) -> Fact:
    if composite is not None:

        def runs(gang: str) -> bool:
            return registry.view(gang).satisfied

        # With a minimum of 0 nothing has to run, and "is scheduled" would be told of a tree without
        # a pod.
        root, counts = in_gangs(composite, runs)
        if is_whole(root, counts) and any(counts.values()):
            number = len(whole_children(root, composite, counts))
            share = f"{number} of {counted(len(composite.children), 'group')}"
            scheduled = f"{share} {is_or_are(number)} scheduled"
            least = composite.min_children
            needed = f"at least {least} needed"
            if number < least:
                needed += ", counting those that need no pods"

            return True, Reason.SCHEDULED.value, f"{scheduled}; {needed}"

    refusal = _refusal(composite, group)
    if refusal is None:
        return False, Reason.WAITING_FOR_GANG.value, "its gangs are not decided yet"

    return (
        False,
        INVALID if refusal.reason is Reason.INVALID_GANG else refusal.reason.value,
        say(refusal).text,
    )


def _refusal(composite: Composite | None, group: GroupRecord) -> Refusal | None:
    """Why the gangs of a composite wait: the first one that is refused says so, if possible for a
    cause of its own.
    """
    if group.refusal is not None:
        return group.refusal

    verdict = group.told_verdict
    if composite is None or verdict is None:
        return None

    refused = []
    for gang_id in gangs_of(*composite.children):
        refusal = verdict.of_gang(gang_id)
        if refusal.reason is not Reason.SCHEDULED:
            refused.append(refusal)

    return min(refused, key=Refusal.is_of_a_sibling, default=None)
