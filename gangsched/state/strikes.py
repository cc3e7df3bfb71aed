"""How members of a gang ended, for as long as that may speak against a node (semantics L8)."""

from __future__ import annotations

from typing import Final, NamedTuple

from gangsched.model.objects import Pod

SAME_FAULT_S: Final = 60.0
"""Members that end within this time of each other may have one fault in common."""


class Ending(NamedTuple):
    """The end of a member; times are epoch seconds. `cause` is "" unless it may be the node's
    fault.
    """

    pod: str
    node: str
    created_s: float
    at_s: float
    cause: str = ""

    @classmethod
    def of(cls, pod: Pod, wall_s: float) -> Ending:
        """The end of a pod, which was seen at `wall_s`."""
        death = pod.death
        if death is None:
            return cls(pod.key, pod.node_name, pod.creation_s, wall_s)

        at_s = death.at_s or wall_s
        return cls(pod.key, pod.node_name, pod.creation_s, at_s, death.cause)

    @property
    def is_strike(self) -> bool:
        """Whether the node may have killed the member."""
        return bool(self.cause)
