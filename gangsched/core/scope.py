"""The part of the cluster to which one attempt to place a group is limited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangsched.model.snapshot import Bools

if TYPE_CHECKING:
    from gangsched.core.search.demand import Demand
    from gangsched.core.search.packing import Packing
    from gangsched.model.gang import Gang
    from gangsched.model.objects import Pod
    from gangsched.model.verdict_facts import DomainsShort


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Nodes to which one attempt is limited, None for all nodes: `accelerated` for pods with
    accelerators, `others` for other pods.
    """

    accelerated: Bools | None = None
    others: Bools | None = None
    #: The reason that is reported for the excluded nodes.
    text: str = ""
    #: An attempt succeeds only if it places every member.
    whole: bool = False
    #: Any result is used (`core.search`).
    last: bool = False
    #: Stable across plans.
    name: str = ""
    #: What this scope and the others lack.
    lack: DomainsShort | None = None
    #: The scope is known to be too small.
    refuted: bool = False
    #: If only room matters: a member, with its gang, for which the scope is too small, so that no
    #: member is placed there.
    lacking: tuple[Gang, Pod] | None = None
    #: A demand and its packing, which an earlier search found on equal nodes in the scope; it is
    #: tried before any other order.
    packed: tuple[Demand, Packing] | None = None

    def narrowed(self, inside: Bools, name: str) -> Scope:
        """The part of the scope that is `inside`, for all pods; `name` describes it."""
        accelerated, others = (
            inside if each is None else inside & each for each in (self.accelerated, self.others)
        )
        return Scope(accelerated, others, f"node(s) are outside {name}")

    def of(self, *, accelerated: bool) -> Bools | None:
        """Nodes for pods with accelerators, or for pods without."""
        return self.accelerated if accelerated else self.others


EVERYWHERE = Scope(last=True)
