"""Stamps: a member's stamp, and whether it is proven (semantics B4).

Invariant: a stamp that the pod's owner may have written is never proven. A stamp that this process wrote takes
precedence over the one on the pod, and a pod that is not bound has none. An unproven stamp still means that its gang
has started, which affects only this gang, but gives it no precedence over others.
"""

from __future__ import annotations

from gangsched.model.objects import Pod
from gangsched.state.members import KEEPS_STAMP, Member, State

GUARD_TAKES_S = 10
"""An API server may admit pods by its old policies for a moment after a new one was created."""
ORDERED = frozenset({State.BINDING, State.WITHDRAWN})
"""The states in which the stamp is what our own bind carries, and the pod has none yet."""


class Stamps:
    """Reads and proves stamps; `guarded_since_s` is the wall second since which an admission policy protects them."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.guarded_since_s: int | None = None

    def guard(self, pod: Pod) -> bool:
        """Whether the policy existed before the pod, so that its owner cannot have written the stamp."""
        since_s = self.guarded_since_s
        return pod.permitted is not None and since_s is not None and pod.creation_s > since_s + GUARD_TAKES_S

    def keep(self, member: Member, state: State, old: Pod) -> None:
        """Update the stamp of a member that changes its state; `old` is the previous version of its pod."""
        pod = member.pod
        # A failed bind carried a stamp that never reached the pod.
        if state not in KEEPS_STAMP:
            member.permit, member.is_proven = None, False
        # Read once, when the pod is first seen bound: what its owner writes there later is not read any more.
        elif member.permit is None and state not in ORDERED:
            member.permit = pod.permitted
            member.is_proven = self.guard(pod) or self._is_of_a_binding(old, pod)

    def _is_of_a_binding(self, old: Pod, new: Pod) -> bool:
        """Whether the stamp came with the node, in a Binding, which owners of pods may not write."""
        # The stamp came with the same write as the node. Only a Binding does both, and owners may not create one.
        is_new = old.uid == new.uid and not old.node_name and old.permitted is None
        return is_new and old.scheduler_name in self._names and bool(new.node_name) and new.permitted is not None
