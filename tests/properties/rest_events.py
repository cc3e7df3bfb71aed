"""What happens in the histories of `rests`: pods, gangs, nodes, volumes and budgets come, change
and go.

Each name of `EVENTS` is drawn by chance, and what it does is drawn from the same dice, so that a
seed is one history.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from gangsched.api import keys
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement, Spread
from gangsched.model.objects import ClaimUse, NodeSelectorTerm, Phase, Pod
from gangsched.model.protocol import Applied, Gone
from gangsched.model.storage import NO_PROVISIONER, Claim, StorageClass, Volume
from tests.builders import NAMESPACE, gang_metadata, node, pod, pod_group, running, shape
from tests.world import World

RACK = "example.com/rack"
LOCAL = StorageClass(name="local", provisioner=NO_PROVISIONER, waits=True)
LATE = StorageClass(name="late", provisioner="csi.test", waits=True)
PRIORITIES = (0, 0, 0, 5, 5, 10, 100)
GIB = 2**30


class Arrivals:
    """What users, kubelets and other schedulers do in `world`, by `dice`."""

    def __init__(self, world: World, dice: random.Random) -> None:
        """With some of three features: claims, racks that gangs ask for, and pods that look at
        others.
        """
        self.world = world
        self.dice = dice
        self.kinds = dice.sample(list(EVENTS), dice.randint(6, len(EVENTS)))
        self._number = 0
        self._known = dice.choice((0.0, 0.5, 1.0))
        self._features = frozenset(
            name for name in ("claims", "racks", "pods") if dice.random() < 0.4
        )
        self.world.say(Applied(LOCAL), Applied(LATE))
        for number in range(dice.randint(2, 5)):
            self._node(number)
        for _ in range(dice.randint(0, 5)):
            self._foreign()

    def rest(self, seconds: float) -> None:
        """Time passes; kubelets start what was bound, and evicted pods end."""
        self.world.settle()
        started = [
            each
            for each in self.world.pods.values()
            if each.node_name and each.live and not each.start_s
        ]
        for each in started:
            self.world.update(each, start_s=self.world.wall_s(), phase=Phase.RUNNING)
        (self.world.advance if started else self.world.advance_settled)(seconds)

    # --- what arrives ----------------------------------------------------------------------------

    def _name(self) -> str:
        self._number += 1
        return f"p{self._number:03}"

    def _some(self) -> int:
        return self.dice.choice((1, 1, 2, 3, 4))

    def _shape(self) -> Any:
        gpus, cpus = self.dice.choice(
            ((8, 1), (8, 1), (4, 2), (4, 2), (2, 1), (1, 4), (0, 6), (0, 12))
        )
        return shape(gpus, cpus * 1_000, **self._inter_pod())

    def _inter_pod(self) -> dict[str, Any]:
        if "pods" not in self._features or self.dice.random() < 0.6:
            return {}
        app = (Requirement("app", "In", (self.dice.choice("xy"),)),)
        where = self.dice.choice((RACK, "kubernetes.io/hostname"))
        constraints = self.dice.choice(
            (
                InterPodConstraints(anti_affinity=(PodTerm(topology_key=where, selector=app),)),
                InterPodConstraints(affinity=(PodTerm(topology_key=where, selector=app),)),
                InterPodConstraints(spread=(Spread(topology_key=where, max_skew=1, selector=app),)),
            )
        )
        return {"inter_pod": constraints}

    def _stated(self) -> tuple[tuple[str, str], ...]:
        runs_s = self.dice.choice((20, 100, 400, 1_000))
        return ((keys.EXPECTED_RUNTIME, f"{runs_s}s"),) if self.dice.random() < self._known else ()

    def _pods(self, number: int, **fields: Any) -> list[Pod]:
        name, of, mixed = self._name(), self._shape(), self.dice.random() < 0.2
        given: dict[str, Any] = {
            "run_time_metadata": self._stated(),
            "creation_s": self.world.wall_s() - self.dice.choice((0, 0, 90)),
            "namespace": self.dice.choice((NAMESPACE, NAMESPACE, "other")),
            "priority": self.dice.choice(PRIORITIES),
            "labels": {"app": self.dice.choice("xy")},
            "grace_s": self.dice.choice((0, 1, 30)),
            "never_preempts": self.dice.random() < 0.05,
        }
        given |= fields
        made = [
            pod(f"{name}-{n}", of=self._shape() if mixed else of, **given) for n in range(number)
        ]
        if "claims" in self._features and self.dice.random() < 0.4:
            made = [self._with_claim(each) for each in made]
        return made

    def _with_claim(self, each: Pod) -> Pod:
        kind = self.dice.choice((LOCAL, LOCAL, LATE))
        claim = Claim(
            namespace=each.namespace,
            name=f"c-{each.name}",
            uid=f"c-{each.uid}",
            resource_version="5",
            storage_class=kind.name,
            request_bytes=GIB,
            access_modes=("ReadWriteOnce",),
        )
        self.world.say(Applied(claim))
        return msgspec.structs.replace(each, claims=(ClaimUse(claim.name),))

    def _gang(self) -> None:
        number = self._some()
        made = self._pods(number)
        self.world.create(self._in_gang(made, f"g{self._number:03}"))

    def _in_gang(self, made: list[Pod], name: str, groups: tuple[str, ...] = ()) -> list[Pod]:
        least = self.dice.randint(1, len(made)) if self.dice.random() < 0.3 else len(made)
        marks = gang_metadata(
            name,
            min_member=least,
            mode=self.dice.choice(("Strict", "Strict", "NonStrict")),
            groups=groups,
            wait=self.dice.choice(("10s", "100s", "600s")),
        )
        if "racks" in self._features and self.dice.random() < 0.5:
            marks = tuple(sorted((*marks, (keys.TOPOLOGY[0], RACK))))
        return [msgspec.structs.replace(each, gang_metadata=marks) for each in made]

    def _declared(self) -> None:
        """A gang with a PodGroup."""
        made = self._pods(self._some(), namespace=NAMESPACE)
        name = f"g{self._number:03}"
        self.world.declare(pod_group(name, self.dice.randint(1, len(made))))
        marks = gang_metadata(name, pod_group=True)
        self.world.create(msgspec.structs.replace(each, gang_metadata=marks) for each in made)

    def _pair(self) -> None:
        """Two gangs of one group."""
        names = [f"g{self._number:03}a", f"g{self._number:03}b"]
        groups = tuple(f"{NAMESPACE}/{name}" for name in names)
        for name in names:
            self.world.create(
                self._in_gang(self._pods(self._some(), namespace=NAMESPACE), name, groups)
            )

    def _plain(self) -> None:
        self.world.create(self._pods(1))

    def _foreign(self) -> None:
        """A pod of another scheduler takes what is free, or more."""
        (made,) = self._pods(
            1, scheduler_name="other", start_s=self.world.wall_s() - self.dice.choice((1, 1_000))
        )
        made = msgspec.structs.replace(made, claims=())
        if self.world.nodes:
            self.world.create(running(made, self.dice.choice(sorted(self.world.nodes))))

    def _nominee(self) -> None:
        """Another scheduler makes room for a pod of its own."""
        (made,) = self._pods(
            1, scheduler_name="other", priority=self.dice.choice((5, 10, 100, 1000))
        )
        if self.world.nodes:
            name = self.dice.choice(sorted(self.world.nodes))
            self.world.create(msgspec.structs.replace(made, claims=(), nominated_node=name))

    # --- what changes ----------------------------------------------------------------------------

    def _pick(self, **of: bool) -> Pod | None:
        pods = sorted(self.world.pods.values(), key=lambda each: each.name)
        there = (
            [each for each in pods if bool(each.node_name) is of["bound"] and each.live]
            if of
            else pods
        )
        return self.dice.choice(there) if there else None

    def _nominee_leaves(self) -> None:
        found = [
            each
            for each in self.world.pods.values()
            if each.nominated_node and each.scheduler_name == "other"
        ]
        if not found:
            return
        each = self.dice.choice(found)
        deed = self.dice.randrange(3)
        if deed == 0:
            self.world.delete(each)
        elif deed == 1:
            self.world.update(each, nominated_node="")
        else:
            self.world.update(
                each,
                node_name=each.nominated_node,
                start_s=self.world.wall_s(),
                phase=Phase.RUNNING,
            )

    def _deleted(self) -> None:
        if each := self._pick(bound=True):
            self.world.delete(each)

    def _withdrawn(self) -> None:
        if each := self._pick(bound=False):
            self.world.delete(each)

    def _finished(self) -> None:
        if each := self._pick(bound=True):
            self.world.update(each, phase=self.dice.choice((Phase.SUCCEEDED, Phase.FAILED)))

    def _terminates(self) -> None:
        each = self._pick(bound=True)
        if each is not None and not each.deleting:
            grace_s = self.dice.choice((1, 30, 300))
            self.world.leaving[each.uid] = self.world.now_s + grace_s
            self.world.update(each, deleting=True, deletion_s=self.world.wall_s() + grace_s)

    def _relabelled(self) -> None:
        if each := self._pick():
            self.world.update(each, labels={"app": self.dice.choice("xyz")})

    def _gated(self) -> None:
        if each := self._pick(bound=False):
            self.world.update(each, gated=not each.gated)

    def _cleared(self) -> None:
        for each in list(self.world.pods.values()):
            if each.timed_out:
                self.world.update(each, timed_out=False)

    def _edited(self) -> None:
        """The minimum of a PodGroup changes: its members may be victims one by one, or not."""
        found = list(self.world.pod_groups.values())
        if found:
            old = self.dice.choice(found)
            minimum = self.dice.randint(1, 4)
            self.world.declare(
                msgspec.structs.replace(old, min_member=minimum, generation=old.generation + 1)
            )

    def _node(self, number: int | None = None, *, gpus: int = 8) -> None:
        name = f"n{self.dice.randrange(5) if number is None else number}"
        rack = {RACK: f"r{self.dice.randrange(2)}"} if self.dice.random() < 0.9 else {}
        self.world.add_nodes(node(name, gpus, cpu_milli=16_000, labels=rack))

    def _closed(self) -> None:
        if self.world.nodes:
            old = self.world.nodes[self.dice.choice(sorted(self.world.nodes))]
            self.world.add_nodes(msgspec.structs.replace(old, unschedulable=not old.unschedulable))

    def _resized(self) -> None:
        if self.world.nodes:
            old = self.world.nodes[self.dice.choice(sorted(self.world.nodes))]
            new = node(
                old.name, self.dice.choice((4, 8, 12)), cpu_milli=self.dice.choice((8_000, 16_000))
            )
            self.world.add_nodes(msgspec.structs.replace(old, allocatable=new.allocatable))

    def _lost(self) -> None:
        if len(self.world.nodes) > 1:
            name = self.dice.choice(sorted(self.world.nodes))
            self.world.remove_node(name)
            for each in [each for each in self.world.pods.values() if each.node_name == name]:
                self.world.delete(each)

    def _budget(self) -> None:
        namespace, app = self.dice.choice((NAMESPACE, "other")), self.dice.choice("xy")
        if self.dice.random() < 0.2:
            self.world.say(Gone(PodDisruptionBudget, f"{namespace}/{app}"))
            return
        selector = (Requirement("app", "In", (app,)),)
        allowed = self.dice.choice((0, 0, 1, 2, 9))
        self.world.say(
            Applied(
                PodDisruptionBudget(
                    namespace=namespace, name=app, selector=selector, allowed=allowed
                )
            )
        )

    def _volume(self) -> None:
        """A volume that one rack or node has."""
        where = self.dice.choice(
            (
                (Requirement(RACK, "In", (self.dice.choice(("r0", "r1")),)),),
                (Requirement("kubernetes.io/hostname", "In", (f"n{self.dice.randrange(5)}",)),),
            )
        )
        self.world.say(
            Applied(
                Volume(
                    name=f"v-{self._name()}",
                    resource_version="3",
                    storage_class="local",
                    capacity_bytes=GIB,
                    access_modes=("ReadWriteOnce",),
                    available=True,
                    required=(NodeSelectorTerm(labels=where),),
                )
            )
        )

    def _waited(self) -> None:
        self.rest(self.dice.choice((1.0, 10.0, 100.0)))


EVENTS = {
    "gang": Arrivals._gang,
    "gang 2": Arrivals._gang,
    "gang 3": Arrivals._gang,
    "declared": Arrivals._declared,
    "pair": Arrivals._pair,
    "plain": Arrivals._plain,
    "foreign": Arrivals._foreign,
    "nominee": Arrivals._nominee,
    "nominee leaves": Arrivals._nominee_leaves,
    "deleted": Arrivals._deleted,
    "deleted 2": Arrivals._deleted,
    "withdrawn": Arrivals._withdrawn,
    "finished": Arrivals._finished,
    "terminates": Arrivals._terminates,
    "relabelled": Arrivals._relabelled,
    "gated": Arrivals._gated,
    "cleared": Arrivals._cleared,
    "edited": Arrivals._edited,
    "node": Arrivals._node,
    "closed": Arrivals._closed,
    "resized": Arrivals._resized,
    "lost": Arrivals._lost,
    "budget": Arrivals._budget,
    "volume": Arrivals._volume,
    "waited": Arrivals._waited,
}
"""What may happen; the more names, the more often."""
