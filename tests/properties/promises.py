"""What must be true of a world at any moment, and when nothing is left to do.

Invariant: the world's own pods and nodes are counted, as the API server has them, and not what the
state believes of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

from gangsched.core.cycle import plan
from gangsched.model.objects import Pod
from gangsched.model.plan import RoundOutcome
from gangsched.sentences import say
from gangsched.state.cluster import Cluster
from gangsched.state.groups import POD_GROUP_WAIT_S
from gangsched.state.members import State
from tests.builders import OURS
from tests.properties.histories import History
from tests.world import World


def used(world: World) -> dict[str, Counter[str]]:
    """node → resource → amount taken by live bound pods, binds under way, holds and room kept for a
    retry.
    """
    places = {
        pod.uid: (pod, pod.node_name) for pod in world.pods.values() if pod.live and pod.node_name
    }
    for bind in world.unanswered:
        if bind.uid in world.pods:
            places.setdefault(bind.uid, (world.pods[bind.uid], bind.node))
    for member in world.state.members.all():
        if member.state in {State.HELD, State.KEPT}:
            places.setdefault(member.pod.uid, (member.pod, member.node))
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for pod, name in places.values():
        total[name].update(dict(pod.shape.requests))
    return total


def never_over_committed(world: World) -> None:
    """Bound, being bound and held together fit into every node."""
    for name, taken in used(world).items():
        if name in world.nodes:
            offered = dict(world.nodes[name].allocatable)
            over = {
                resource: amount
                for resource, amount in taken.items()
                if amount > offered.get(resource, 0)
            }
            assert not over, f"node {name} is over-committed: {over}"


def columns_are_exact(world: World) -> None:
    """The state's columns are the sum of what is on the nodes, nothing more and nothing less."""
    cluster = Cluster()
    for each in world.nodes.values():
        cluster.apply_node(each)
    expected = cluster.snapshot()
    free = {name: dict(each.allocatable) for name, each in world.nodes.items()}
    picture = world.state.snapshot()
    assert picture.table.names == expected.table.names
    for name, taken in used(world).items():
        for resource, amount in taken.items():
            if name in free:
                free[name][resource] = free[name].get(resource, 0) - amount
    for index, name in enumerate(picture.table.names):
        for resource, row in picture.resources.items():
            assert picture.free[row, index] == free[name].get(resource, 0), f"{resource} on {name}"


def holds_are_sound(world: World) -> None:
    """Only live, unbound, ungated members of ours that are not being deleted hold, and only on
    nodes that are there.
    """
    for member in world.state.members.all():
        if member.state is State.HELD:
            pod = world.pods[member.pod.uid]
            assert pod.live, f"{pod.key} has ended and holds"
            is_out = pod.node_name or pod.deleting or pod.gated
            assert not is_out, f"{pod.key} holds"
            assert pod.scheduler_name in OURS
            assert member.node in world.nodes, f"{pod.key} holds on {member.node}, which is gone"


def all_or_nothing(history: History) -> None:
    """No gang that nobody meddled with has some members bound or being bound, but fewer than its
    minimum.
    """
    world = history.world
    under_way = {bind.uid for bind in world.unanswered}
    placed: Counter[str] = Counter()
    for pod in world.pods.values():
        placed[history.gang_of(pod)] += pod.live and bool(pod.node_name or pod.uid in under_way)
    for number, kind in enumerate(history.kinds):
        name = f"g{number}"
        if name not in history.blemished:
            assert placed[name] == 0 or placed[name] >= kind["min"], (
                f"{name}: {placed[name]} of {kind['min']}"
            )


def rounds_end(world: World) -> None:
    """Every round closed in its plan: tried no more than there was, placed no more than
    it tried.
    """
    for proposal in world.plans:
        for verdict in proposal.verdicts:
            round_ = verdict.round
            if round_ is not None:
                assert round_.outcome in RoundOutcome
                assert round_.placed <= round_.attempted <= round_.present
    world.plans.clear()


def waiting(world: World) -> list[Pod]:
    """The pods that gangsched must decide about: ours, live, unbound, ungated, not going, not bound
    just now.
    """
    gone = {member.pod.uid for member in world.state.members.all() if member.state is State.DELETED}
    under_way = {bind.uid for bind in world.unanswered}
    return [
        pod
        for pod in world.pods.values()
        if pod.scheduler_name in OURS
        and pod.live
        and not (pod.node_name or pod.gated or pod.deleting)
        and pod.uid not in gone | under_way
    ]


def everyone_was_told(world: World) -> None:
    """Every pending pod of ours carries a reason and a sentence, a second after its wait for a
    PodGroup (I2).
    """
    world.advance(0.6)
    pod_groups_have_come(world)
    for pod in waiting(world):
        reason, message = world.condition(pod)
        assert reason, f"{pod.key} was told nothing"
        assert message, f"{pod.key} was told {reason} without a sentence"
        assert reason != "Scheduled", f"{pod.key} waits and was told that it does not"


def pod_groups_have_come(world: World) -> None:
    """Nothing is decided on a group that waits for a PodGroup, which is for a second at
    most (I2).
    """
    registry = world.state.registry
    if any(map(registry.awaits_pod_group, registry.groups)):
        world.advance(POD_GROUP_WAIT_S)


def nobody_sleeps_wrongly(world: World) -> None:
    """Looking at every group again, those that back off aside, changes nothing: what could go on
    was woken at once.

    Those that wait for a PodGroup and those for whom others are held back have their time first
    (I2, V27).
    """
    world.settle()
    pod_groups_have_come(world)
    for _ in range(len(world.state.registry.groups)):
        until_s = world.state.preemptions.holding_back.next_deadline_s()
        if until_s < math.inf:
            world.advance(until_s - world.now_s)

    state = world.state
    groups = [
        group
        for group_id in state.registry.groups
        if not state.queue.backs_off(group_id, world.now_s)
        for group in [state.registry.group(group_id, world.now_s)]
        if any(gang.pending or gang.retry or gang.held for gang in group.gangs)
    ]
    if not groups:
        return
    for verdict in plan(state.snapshot(), groups, now_s=world.now_s).verdicts:
        assert not verdict.binds, f"{verdict.group} could have been bound: {verdict.binds}"
        assert not verdict.holds, f"{verdict.group} could have held: {verdict.holds}"
        assert not verdict.releases, (
            f"{verdict.group} should have released: {say(verdict.told).text}"
        )


def nothing_is_lost(world: World) -> None:
    """What is remembered is what is there: no member, assumption or yield outlives its pod or its
    group.
    """
    registry = world.state.registry
    known = {uid for record in registry.gangs.values() for uid in record.members}
    assert known <= set(world.pods), "members that are no pods"
    under_way = {bind.uid for bind in world.unanswered}
    for record in registry.gangs.values():
        sent = {
            member.pod.uid
            for member in record.of(State.WAITING_FOR_CLAIMS, State.BINDING, State.WITHDRAWN)
        }
        assert sent <= under_way, f"{record.id} assumes what nobody binds"
    for group_id, group in registry.groups.items():
        assert not group.yielded_to or group.yielded_to in registry.groups, (
            f"{group_id} waits for nobody"
        )
        for gang_id in group.gangs:
            assert registry.group_of[gang_id] == group_id
    assert set(registry.group_of) == set(registry.gangs)


def strict_groups_hold_nothing(world: World) -> None:
    """At rest no Strict group holds."""
    for group_id in world.state.registry.groups:
        group = world.state.registry.group(group_id, world.now_s)
        assert not (group.strict and group.holds), f"{group_id} is Strict and holds"
