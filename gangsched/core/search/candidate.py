"""What a round tries: a scope, and what is known of it before."""

from __future__ import annotations

from dataclasses import dataclass

from gangsched.core.scope import EVERYWHERE, Scope
from gangsched.core.search.demand import Demand
from gangsched.core.search.packing import Packing
from gangsched.model.gang import Gang
from gangsched.model.objects import Pod
from gangsched.model.verdict_facts import DomainsShort


@dataclass(frozen=True, slots=True, eq=False)
class ScopeCandidate:
    """A scope in which a group is tried."""

    scope: Scope
    #: An attempt succeeds only if it places every member.
    whole: bool = False
    #: No candidate follows, so any result is used.
    last: bool = False
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

    @property
    def name(self) -> str:
        """Stable across plans."""
        return f"{self.scope.name} at last" if self.last and self.lack else self.scope.name


ANYWHERE = ScopeCandidate(EVERYWHERE, last=True)
