"""Gangs that pods are because they have one owner, which declares how many they are (semantics O1
to O3).

Invariant: pure. A pod shows who its owner is, and whether it asks for such a gang; how many pods
start together is known from the owner alone, unless the pods state it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gangsched.api import keys
from gangsched.api.problem import Problem, bad_value
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.owners import OWNER_KINDS, OwnerGangs
from gangsched.model.text import counted

STATED_MINIMUMS: Final = frozenset(keys.MIN) - {keys.KUEUE_TOTAL, keys.LWS_SIZE}
"""The keys of a minimum that the user states; the other two are the numbers of other projects."""
LATE_S: Final = 30.0
"""Time after which it is reported that an owner has not created all of its pods (O6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerDeclaration:
    """What is known of the owner of a gang."""

    kind: str
    #: "namespace/name" of the owner.
    key: str
    #: Pods that start together; None if the owner does not say, or is not known yet.
    minimum: int | None = None
    #: Pods that have succeeded, which `minimum` leaves out.
    succeeded: int = 0
    gang_metadata: keys.GangMetadata = ()
    #: What is wrong with what it states, "" for nothing (E4).
    problem: str = ""
    #: Name of the tree that the gang is a child of, "" for none.
    parent: str = ""
    #: It declares the parent of a tree, of which so many children start together.
    is_tree: bool = False
    min_children: int | None = None
    #: Why the gang waits for its owner; "" if it does not.
    waits: str = ""
    #: The owner has not created all of its pods for `LATE_S`.
    is_late: bool = False
    #: gangsched may not read owners of this kind any more, and uses what it has read before.
    is_unread: bool = False

    @property
    def who(self) -> str:
        """The owner, for messages."""
        return f"{self.kind} {self.key}"

    @property
    def gang_name(self) -> str:
        """The name of its gang, but for what tells it apart from others of this name."""
        return f"{self.kind}.{self.key.partition('/')[2]}"

    @property
    def note(self) -> str:
        """What is said beside the number of members that a gang lacks, or of children that a tree
        lacks (O6).
        """
        makes = f"{self.who} makes {self.minimum}"
        if self.is_tree:
            makes = f"{self.who} makes {counted(self.min_children or 0, 'Job')}"
        if self.is_unread:
            makes += f" as last read, and gangsched may no longer read {self.kind}s"
        if self.is_late and self.is_tree:
            makes += (
                f", some of which have had no pods for {LATE_S:g} s: see its Events and those of"
                " its Jobs"
            )
        elif self.is_late:
            makes += (
                f", and has not made all of them for {LATE_S:g} s: see its Events, since a"
                " ResourceQuota may forbid the rest"
            )

        return makes


def owner_name(pod: Pod) -> str:
    """The name of the gang that the pods of its controller are."""
    return f"{pod.controller_kind}.{pod.owner}"


def states_minimum(stated: Mapping[str, str]) -> bool:
    """Whether a pod with these keys states the minimum of its gang itself."""
    return not STATED_MINIMUMS.isdisjoint(stated)


def may_be_gang(pod: Pod, stated: Mapping[str, str]) -> bool:
    """Whether the pods of the pod's controller may start together: their number can be known, or is
    stated. Pods that belong to their node never do.
    """
    if pod.ends_with_node:
        return False

    return pod.controller_kind in OWNER_KINDS or states_minimum(stated)


def owner_problem(pod: Pod, owner_gangs: OwnerGangs) -> Problem | None:
    """Why a plain pod with the key `keys.OWNER_GANG` is in no gang, if that is about the pod alone
    and not about its controller; None for other pods.
    """
    value = dict(pod.gang_metadata).get(keys.OWNER_GANG)
    if value is None or value == keys.NO_OWNER:
        return None

    if value != keys.OWNER:
        why = f'is neither "{keys.OWNER}" nor "{keys.NO_OWNER}"'
    elif owner_gangs is OwnerGangs.OFF:
        why = "has no effect while the setting owner_gangs is off"
    elif not pod.owner:
        why = "has no effect on a pod without a controller"
    elif pod.ends_with_node:
        why = f"has no effect on pods of a {pod.controller_kind}, which belong to their nodes"
    else:
        return None

    return bad_value(
        key=keys.OWNER_GANG,
        value=value,
        why=why,
        used="no gang",
        where=f"pod {pod.key}",
        pod=pod.key,
    )


def declared_minimum(
    pod_group: PodGroup | None,
    owner: OwnerDeclaration | None,
) -> int | None:
    """The minimum that an object declares."""
    if pod_group is not None:
        return pod_group.min_member

    return owner.minimum if owner is not None else None


def declared_parent(
    pod_group: PodGroup | None,
    owner: OwnerDeclaration | None,
    group: tuple[str, ...],
    gang: str,
) -> str:
    """The name of the parent that an object declares. That of an owner gives way to a list of
    gangs, which its user has written.
    """
    if pod_group is not None:
        return pod_group.parent

    return owner.parent if owner is not None and group == (gang,) else ""


def declared_children(
    pod_group: PodGroup | None,
    owner: OwnerDeclaration | None,
) -> int | None:
    """The minimum of children that an object declares."""
    if pod_group is not None:
        return pod_group.min_children

    return owner.min_children if owner is not None else None
