"""The part of the cluster to which one attempt to place a group is limited."""

from __future__ import annotations

import msgspec

from gangsched.model.snapshot import Bools


class Scope(msgspec.Struct, frozen=True, eq=False):
    """Nodes to which one attempt is limited, None for all nodes: `accelerated` for pods with
    accelerators, `others` for other pods.
    """

    accelerated: Bools | None = None
    others: Bools | None = None
    #: The reason that is reported for the excluded nodes.
    text: str = ""
    #: Stable across plans.
    name: str = ""

    def narrowed(self, inside: Bools, name: str) -> Scope:
        """The part of the scope that is `inside`, for all pods; `name` describes it."""
        accelerated, others = (
            inside if each is None else inside & each for each in (self.accelerated, self.others)
        )
        return Scope(accelerated, others, f"node(s) are outside {name}")

    @property
    def is_limited(self) -> bool:
        """Whether it excludes any node from any pod."""
        return self.accelerated is not None or self.others is not None

    def of(self, *, accelerated: bool) -> Bools | None:
        """Nodes for pods with accelerators, or for pods without."""
        return self.accelerated if accelerated else self.others


EVERYWHERE = Scope()
