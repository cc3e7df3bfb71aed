"""A world in which a test decides who is preempted, so that only the state's part is tested."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from gangsched.core.cycle import plan
from gangsched.model.gang import Placement
from gangsched.model.objects import Pod
from gangsched.model.plan import Plan
from gangsched.model.preemption import STUCK_S, Harm, Preemption, UnitKind, Victim
from gangsched.model.protocol import CancelPreemption, Evict, PreparePreemption
from tests.builders import NAMESPACE, members, node, pod_group
from tests.world import World


class DecidedWorld(World):
    """`decide` commits a decision as if a plan had made it."""

    def decide(
        self,
        group: str,
        nodes: Iterable[tuple[Pod, str]],
        victims: Iterable[Pod],
        kind: UnitKind = UnitKind.CORE,
        *,
        harm: Harm | None = None,
    ) -> None:
        """Make room for these members on these nodes by evicting `victims`, all of one kind."""
        self.state.refresh(self.now_s)
        self._do(self.state.preemptions.due(self.now_s, self.wall_s()))
        snapshot, queue = self.state.snapshot(), (self.state.registry.group(group, self.now_s),)
        (verdict,) = plan(snapshot, queue, now_s=self.now_s).verdicts
        goes = tuple(self.victim(each, kind) for each in victims)
        decision = Preemption(
            placements=tuple(Placement(each, node) for each, node in nodes),
            victims=goes,
            harm=harm,
            grace_s=30,
            deadline_s=self.wall_s() + 30 + STUCK_S,
        )
        proposal = Plan((structs.replace(verdict, preemption=decision),))
        self._do(self.state.commit(proposal, snapshot, now_s=self.now_s))
        self.check()

    def victim(self, pod: Pod, kind: UnitKind) -> Victim:
        """The pod as a victim."""
        member = self.state.members[pod.uid]
        gang = "" if kind is UnitKind.POD else member.gang
        group = self.state.registry.group_of.get(gang, "")
        return Victim(
            pod.uid, pod.namespace, pod.name, member.node, gang, group, kind, pod.priority
        )

    def prepared(self) -> list[list[str]]:
        """The names of the members that were nominated, an entry an order."""
        orders = (order for order in self.ordered if isinstance(order, PreparePreemption))
        return [[each.name for each in order.members] for order in orders]

    def evicted(self) -> list[str]:
        """The names of the pods of which the eviction was ordered."""
        return [order.name for order in self.ordered if isinstance(order, Evict)]

    def cancelled(self) -> list[list[str]]:
        """The names of the members of which the node was cleared, an entry an order."""
        orders = (order for order in self.ordered if isinstance(order, CancelPreemption))
        return [[each.name for each in order.members] for order in orders]

    def promised(self) -> dict[str, list[str]]:
        """By group the nodes that are promised to it."""
        found: dict[str, list[str]] = {}
        for each in self.state.snapshot().nominations:
            found.setdefault(each.group, []).append(each.node)
        return found

    def nominated(self) -> bool:
        """Whether the high gang has a nomination."""
        return self.state.preemptions.nominations.of(f"{NAMESPACE}/high") is not None


def low_and_high(
    number: int, least: int, *, gpus: int, grace_s: int | None = None
) -> tuple[DecidedWorld, list[Pod], list[Pod]]:
    """The gang low of so many members, which has a PodGroup and fills a node of 8 GPUs; high, of
    one pod, waits.
    """
    world = DecidedWorld(node("a", 8))
    world.declare(pod_group("low", least))
    given = {} if grace_s is None else {"grace_s": grace_s}
    low = world.create(members("low", number, gpus=8 // number, pod_group=True, **given))
    world.settle()
    high = world.create(members("high", 1, gpus=gpus, priority=1000))
    world.settle()
    return world, low, high
