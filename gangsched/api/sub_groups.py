"""Sub groups: an object that declares one gang for each distinct value of its pods' labels, all in
one tree (I9).

Invariant: pure functions; a pod is in at most one sub group of its PodGroup. The gang of a sub
group is declared as long as the sub group has pods, since the object does not list the values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gangsched.api import keys
from gangsched.model.inter_pod import selects
from gangsched.model.objects import Pod, PodGroup, SubGroups

SEPARATOR: Final = ":"
"""Between the names of the PodGroup and of an entry in the name of a part: in no name of
an object.
"""
ALL: Final = "all"
"""In place of values in the name of the only gang of an entry without matchLabelKeys."""
OTHERS: Final = f"{SEPARATOR}others"
"""In the names of the part, and of its only gang, that has the pods of no entry; no entry has this
name.
"""
_OF_THE_WHOLE: Final = frozenset(
    (
        *keys.MIN,
        *keys.TOTAL,
        *keys.GROUPS,
        *keys.KEEP_ROOM,
        *keys.MIN_CHILDREN,
        *keys.TOPOLOGY,
        *keys.PARENT,
    )
)
_UNSUPPORTED: Final = frozenset(
    (*keys.MIN, *keys.TOTAL, *keys.GROUPS, *keys.KEEP_ROOM, *keys.MIN_CHILDREN)
)


def divided(pod_group: PodGroup, sub_groups: tuple[SubGroups, ...]) -> PodGroup:
    """Add to the PodGroup the parts that it declares: the root of a tree, and a composite for each
    entry of its policy.

    Annotations about topology levels apply to the whole tree; annotations about a minimum refuse
    it; all others apply to each sub group.
    """
    # Values about one gang cannot be divided among many, and which of them was meant is not known.
    stated = dict(pod_group.gang_metadata)
    refused = tuple(
        f"annotation {key} of PodGroup {pod_group.id} cannot be combined with subGroupPolicy:"
        " remove one of them"
        for key in sorted(_UNSUPPORTED & stated.keys())
    )
    root = msgspec.structs.replace(
        pod_group,
        min_member=0,
        min_resources=(),
        sub_groups=sub_groups,
        of_object=pod_group.name,
        is_composite=True,
        unsupported=(*pod_group.unsupported, *refused),
    )
    inner = msgspec.structs.replace(
        root,
        gang_metadata=(),
        sub_groups=(),
        not_used=(),
        problems=(),
        speaks=False,
        parent=root.name,
    )
    entries = (
        msgspec.structs.replace(inner, name=sub_group.name, min_children=sub_group.min_groups)
        for sub_group in sub_groups
    )
    others = msgspec.structs.replace(inner, name=f"{root.name}{SEPARATOR}{OTHERS}", min_children=0)

    return msgspec.structs.replace(pod_group, parts=(root, *entries, others))


def misplaced(pods: Iterable[Pod], root: PodGroup) -> str:
    """Why pods are refused: two entries select the same pod, or the pods are not divided into sub
    groups yet.
    """
    # Only the first one: once all are divided, each of the others is misplaced for the same reason.
    why = next((sub_group_of(pod, root) for pod in pods), None)
    if isinstance(why, str):
        return why

    return f"the pods of PodGroup {root.id} are not divided into sub groups yet"


def sub_group_of(pod: Pod, root: PodGroup) -> PodGroup | str:
    """The sub group of a pod, as a PodGroup; or a sentence if two entries select the pod."""
    matching = []
    for sub_groups in root.sub_groups:
        if selects(sub_groups.selector, pod.labels) and all(
            key in pod.labels for key in sub_groups.match_label_keys
        ):
            matching.append(sub_groups)

    if len(matching) > 1:
        return (
            f"pod {pod.key} is selected by two entries in subGroupPolicy of PodGroup {root.id}:"
            " correct them"
        )

    if not matching:
        others = f"{root.name}{SEPARATOR}{OTHERS}"
        return _declared(root, f"{root.name}{SEPARATOR}(others)", others, 1)

    (entry,) = matching
    # As the user reads it in the PodGroup and on the pod. The values alone make it unique: their
    # keys are in one order.
    values = ",".join(
        f"{key.rpartition('/')[2]}={pod.labels[key]}" for key in entry.match_label_keys
    )
    return _declared(root, f"{entry.name}({values or ALL})", entry.name, entry.size)


def _declared(root: PodGroup, name: str, parent: str, size: int) -> PodGroup:
    return msgspec.structs.replace(
        root,
        name=name,
        gang_metadata=tuple(
            (key, text) for key, text in root.gang_metadata if key not in _OF_THE_WHOLE
        ),
        min_member=size,
        parent=parent,
        is_composite=False,
        min_children=None,
        sub_groups=(),
        not_used=(),
        problems=(),
        speaks=False,
        is_of_pods=True,
    )
