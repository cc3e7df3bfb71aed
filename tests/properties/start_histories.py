"""Random histories of starts: trees, groups of gangs and gangs on three to five nodes, of which
nothing starts in part.

Each seed draws a few nodes in two racks and what comes and goes on them. A manner (`MANNERS`) adds
what may go wrong: claims and devices, refused binds and kills, or preemption. After each event
there is time for all that follows, and then every part of every group has nothing or its minimum,
in the rack that it requires; no node is over-full; nobody sleeps who fits (`tests.rest_oracle`);
and a new process that reads the API objects sees the same. They are played by `python -m
tests.properties.rests --of claims`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangsched.api import keys
from gangsched.model.devices import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceTaintRule,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.gang import Gang
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.preemption import PreemptionSettings
from gangsched.model.protocol import (
    Applied,
    Bind,
    BindClaims,
    BindFailed,
    ClaimsReleased,
    ClaimsWritten,
    ReleaseClaims,
    Replaced,
)
from gangsched.model.storage import Claim, ResourceClaim, Selection, StorageClass
from gangsched.state.members import UNDER_WAY
from gangsched.state.rule_set import Rules
from tests.builders import GPU, NAMESPACE, gang_metadata, node, pod, pod_group, running, shape
from tests.rest_oracle import sleepers
from tests.world import EPOCH_S, World

RACK = "example.com/rack"
LATE = StorageClass(name="late", provisioner="csi.test", waits=True)
STEPS = 6
SOON_S = 10.0
"""Who fits starts within this time of the change that let it."""
CALM_S = 100.0
"""After refused binds: they are sent again with a back-off, and room for them is kept for 30 s."""
MOST_CONSUMERS = 256
ASKS = ((DeviceRequest(name="r", class_name="gpu"),),)


@dataclass(frozen=True, slots=True)
class Manner:
    """What may happen besides groups that come and room that goes."""

    claims: bool = False
    kills: bool = False
    preempts: bool = False


MANNERS = {
    "starts": Manner(),
    "claims": Manner(claims=True),
    "kills": Manner(kills=True),
    "kills-with-claims": Manner(claims=True, kills=True),
    "preemption": Manner(preempts=True),
    "claims-with-preemption": Manner(claims=True, preempts=True),
    "kills-with-preemption": Manner(kills=True, preempts=True),
    "all": Manner(claims=True, kills=True, preempts=True),
}


@dataclass(slots=True, eq=False)
class Part:
    """A gang with `pods`, or what has `children`; `least` of them are needed. `top` is the part
    around all.
    """

    name: str
    least: int
    children: list[Part] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    marks: tuple[tuple[str, str], ...] = ()
    is_in_one_rack: bool = False
    is_excused: bool = False
    kind: dict[str, Any] = field(default_factory=dict)

    def leaves(self) -> Iterator[Part]:
        """The gangs of the part."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def every(self) -> Iterator[Part]:
        """The part, and all inside it."""
        yield self
        for child in self.children:
            yield from child.every()


class StartWorld(World):
    """A world whose API server and controllers also know devices, whose writes are refused, and
    which is killed.
    """

    def __init__(self, dice: random.Random, manner: Manner) -> None:
        self.dice, self.manner = dice, manner
        self.kills = dice.choice((0, 1, 1, 2, 3)) if manner.kills else 0
        self.refuses = dice.choice((0.0, 0.1, 0.3)) if manner.kills else 0.0
        self.is_troubled = manner.kills
        self.unmade: set[str] = set()
        rules = Rules(
            allocates=manner.claims, preemption=PreemptionSettings(min_run_s=0, hold_back_s=0)
        )
        super().__init__(rules=rules, preempts=manner.preempts)
        self.controller = False
        self.fate = self._fate_of
        if manner.claims:
            self.say(
                Applied(LATE),
                *(Replaced(kind, ()) for kind in (ResourceSlice, DeviceTaintRule, ResourceClaim)),
            )
            self.say(Replaced(DeviceClass, (DeviceClass("gpu"),)))

    def _fate_of(self, order: Any) -> str:
        is_bind = isinstance(order, Bind | BindClaims)
        return (
            "failed"
            if is_bind and self.is_troubled and self.dice.random() < self.refuses
            else "bound"
        )

    # --- the process -----------------------------------------------------------------------------

    def answer(self) -> None:
        """As in a world; the process may be killed after any write, with others under way."""
        if not (self.is_troubled and self.kills and self.unanswered):
            super().answer()
            return
        waiting, self.unanswered = self.unanswered, []
        for number, order in enumerate(waiting):
            self._carry_out(order)
            if self.dice.random() < 0.2:
                self.kills -= 1
                # Whatever is under way has reached the server, or has not.
                self.unanswered = [
                    each for each in waiting[number + 1 :] if self.dice.random() < 0.3
                ]
                self.restart()
                return
        super().answer()

    def restart(self, **stated: Any) -> None:
        """Another process reads what is in the API."""
        self.objected.clear()
        under_way, self.unanswered = self.unanswered, []
        for order in under_way:
            self._carry_out(order)
        storage = self.state.cluster.storage_cache.storage()
        devices = self.state.cluster.storage_cache._kinds[ResourceSlice]
        # stamps count, as an admission policy guards them
        super().restart(guarded_since_s=0, **stated)
        if self.manner.claims:
            self.say(
                Applied(LATE),
                Replaced(DeviceClass, (DeviceClass("gpu"),)),
                Replaced(DeviceTaintRule, ()),
            )
            self.say(Replaced(ResourceSlice, tuple(devices.values())))
            self.say(
                *map(Applied, storage.volumes.values()), *map(Applied, storage.claims.values())
            )
            self.say(Replaced(ResourceClaim, tuple(storage.devices.values())))

    # --- claims ----------------------------------------------------------------------------------

    def _carry_out(self, order: Bind | BindClaims) -> None:
        if isinstance(order, Bind):
            super()._carry_out(order)
            return
        if self.fate(order) == "failed":
            self.say(BindFailed(order.uid, order.node, "the server said 500"))
            return
        versions: dict[str, str] = {}
        for each in order.claims:
            version = self._allocate(each, order.uid) if each.reserve else self._write(each)
            if version is None:
                self.say(
                    BindFailed(order.uid, order.node, "it has been allocated by another scheduler")
                )
                return
            versions[each.volume or each.key] = version
        self.say(ClaimsWritten(order.uid, versions))
        for each in order.claims:
            if not each.reserve and each.key not in self.unmade:
                self.bind_claim(each.key, each.volume)

    def _resource_claim(self, each: Selection) -> ResourceClaim:
        found = self.state.cluster.storage_cache.resource_claim(each.key)
        assert found is not None
        return found

    def _change(self, claim: ResourceClaim, **fields: Any) -> str:
        version = str(int(claim.resource_version) + 1)
        self.say(Applied(msgspec.structs.replace(claim, resource_version=version, **fields)))
        return version

    def _allocate(self, each: Selection, uid: str) -> str | None:
        """Write devices; the new version, or None if the claim has others."""
        claim = self._resource_claim(each)
        if each.allocation is None:
            return claim.resource_version
        assert claim.asks is not None
        if claim.allocated:
            # An earlier try may have written the same.
            is_written = claim.asks.results == each.allocation.results and uid in claim.reserved
            return claim.resource_version if is_written else None
        asks = msgspec.structs.replace(claim.asks, results=each.allocation.results)
        return self._change(
            claim,
            allocated=True,
            asks=asks,
            required=each.required,
            reserved=(*claim.reserved, uid),
        )

    def _bind(self, bind: Bind) -> None:
        for each in bind.claims:
            claim = self._resource_claim(each)
            if bind.uid not in claim.reserved and len(claim.reserved) >= MOST_CONSUMERS:
                self.say(
                    BindFailed(
                        bind.uid,
                        bind.node,
                        "reservedFor: Too many: 257: must have at most 256 items",
                    )
                )
                return
            if bind.uid not in claim.reserved:
                self._change(claim, reserved=(*claim.reserved, bind.uid))
        super()._bind(bind)

    def _withdraw(self, order: ReleaseClaims) -> None:
        super()._withdraw(order)
        versions = {}
        for each in order.claims:
            if each.reserve:
                claim = self._resource_claim(each)
                assert claim.asks is not None
                asks = msgspec.structs.replace(claim.asks, results=None)
                versions[each.key] = self._change(
                    claim, allocated=False, asks=asks, required=None, reserved=()
                )
        if versions:
            self.say(ClaimsReleased(versions))


class StartHistory:
    """The history of one seed; `play` yields what does not hold."""

    def __init__(self, seed: int, manner: Manner) -> None:
        self.dice = random.Random(seed)
        self.world = StartWorld(self.dice, manner)
        self.manner = manner
        self.roots: list[Part] = []
        self.steps: list[str] = []
        self._serial = 0
        for number in range(self.dice.randint(3, 5)):
            self._node(number)
        for _ in range(self.dice.randint(0, 4)):
            self._foreign()
        for _ in range(self.dice.randint(1, 3)):
            self._group()

    def play(self) -> Iterator[str]:
        """Play it to its end."""
        events = (*EVENTS, "provisioned") if self.manner.claims else EVENTS
        for number in range(STEPS):
            if number:
                name = self.dice.choice(events)
                self.steps.append(name)
                getattr(self, f"_{name.replace(' ', '_')}")()
            yield from (
                f"step {number} ({name if number else 'at first'}): {each}"
                for each in self._rested()
            )
        before, there = self._seen(), self.world.bound()
        self.world.restart()
        self.world.state.refresh(self.world.now_s)
        after = self._seen()
        differing = [name for name in before if name in after and before[name] != after[name]]
        yield from (
            f"after a restart gang {name} is {after[name]}, and was {before[name]}"
            for name in differing
        )
        yield from (f"after a restart: {each}" for each in self._rested())
        if not (self.manner.claims or self.manner.preempts) and self.world.bound() != there:
            yield f"after a restart {self.world.bound()} are bound, and were {there}"

    def _rested(self) -> Iterator[str]:
        self.world.advance(SOON_S)
        if self.manner.kills:
            self.world.is_troubled = False
            self.world.advance(CALM_S)
            self.world.is_troubled = True
        yield from self._halves()
        yield from self._over_full()
        due_s = self.world.state.next_deadline_s(self.world.now_s)
        if due_s is not None and due_s <= self.world.now_s:
            yield f"a turn is due since {self.world.now_s - due_s} s"
        yield from sleepers(self.world.state, self.world.now_s, EPOCH_S + self.world.now_s)

    # --- what must hold --------------------------------------------------------------------------

    def _placed(self, part: Part) -> list[Pod]:
        uids = [uid for leaf in part.leaves() for uid in leaf.pods]
        found = [self.world.pods[uid] for uid in uids if uid in self.world.pods]
        return [each for each in found if each.node_name and not each.deleting]

    def _is_whole(self, part: Part) -> bool:
        if not part.children:
            return len(self._placed(part)) >= part.least
        return sum(map(self._is_whole, part.children)) >= part.least

    def _halves(self) -> Iterator[str]:
        for root in self.roots:
            for part in root.every():
                placed = self._placed(part)
                if placed and not root.is_excused and not self._is_whole(part):
                    yield (
                        f"{part.name} has {sorted(each.name for each in placed)}, and not its"
                        f" minimum of {part.least}"
                    )
                racks = {self.world.nodes[each.node_name].labels.get(RACK) for each in placed}
                if part.is_in_one_rack and (len(racks) > 1 or None in racks):
                    yield f"{part.name} must be in one rack, and has {sorted(map(str, racks))}"

    def _over_full(self) -> Iterator[str]:
        used: dict[str, Counter[str]] = {name: Counter() for name in self.world.nodes}
        for each in self.world.pods.values():
            if each.node_name in used and each.live:
                used[each.node_name].update(dict(each.shape.requests))
        for name, amounts in used.items():
            offered = dict(self.world.nodes[name].allocatable)
            for resource, amount in amounts.items():
                if amount > offered.get(resource, 0):
                    yield (
                        f"node {name} offers {offered.get(resource, 0)} of {resource}, and {amount}"
                        " are used"
                    )

    def _seen(self) -> dict[str, object]:
        """What the process knows of each gang of which nothing is under way."""
        registry = self.world.state.registry
        at_rest = [each for each in registry.gangs.values() if not each.of(*UNDER_WAY)]
        return {each.id: _facts(registry.view(each.id)) for each in at_rest}

    # --- what happens ----------------------------------------------------------------------------

    def _name(self, kind: str) -> str:
        self._serial += 1
        return f"{kind}{self._serial}"

    def _node(self, number: int | None = None) -> None:
        name = f"n{len(self.world.nodes)}" if number is None else f"n{number}"
        if len(self.world.nodes) >= 6:
            return
        rack = self.dice.choice(("r0", "r0", "r1", "r1", ""))
        self.world.add_nodes(
            node(name, self.dice.choice((2, 4, 4, 8)), labels={RACK: rack} if rack else {})
        )
        if self.manner.claims:
            made = tuple(Device(name=f"d{at}") for at in range(self.dice.choice((0, 1, 2, 4))))
            self.world.say(
                Applied(
                    ResourceSlice(
                        name=name, driver="d", pool=name, scope=NodeScope(name), devices=made
                    )
                )
            )

    def _foreign(self) -> None:
        """A pod of another scheduler takes room that is free."""
        snapshot = self.world.state.snapshot()
        name = self.dice.choice(sorted(self.world.nodes))
        free = int(snapshot.free[snapshot.resources[GPU], snapshot.table.index[name]])
        if free > 0:
            gpus = self.dice.randint(1, free)
            self.world.create(
                running(
                    pod(self._name("foreign"), gpus=gpus, scheduler_name="other", priority=1000),
                    name,
                )
            )

    def _room(self) -> None:
        """A pod of another scheduler goes."""
        there = [each for each in self.world.pods.values() if each.scheduler_name == "other"]
        if there:
            self.world.delete(self.dice.choice(there))

    def _cordon(self) -> None:
        old = self.world.nodes[self.dice.choice(sorted(self.world.nodes))]
        self.world.add_nodes(msgspec.structs.replace(old, unschedulable=not old.unschedulable))

    def _lost(self) -> None:
        """A user deletes a pod: what is left of its group is no fault."""
        pods = [(root, uid) for root in self.roots for leaf in root.leaves() for uid in leaf.pods]
        there = [(root, uid) for root, uid in pods if uid in self.world.pods]
        if there:
            root, uid = self.dice.choice(there)
            root.is_excused = root.is_excused or bool(self.world.pods[uid].node_name)
            self.world.delete(self.world.pods[uid])

    def _member(self) -> None:
        """A gang gets another member, or one again that it has lost."""
        leaves = [leaf for root in self.roots for leaf in root.leaves()]
        leaf = self.dice.choice(leaves)
        self._fill(leaf, 1)

    def _restart(self) -> None:
        self.world.restart()

    def _provisioned(self) -> None:
        """Volumes that were not made are made."""
        made, self.world.unmade = self.world.unmade, set()
        for key in sorted(made):
            claim = self.world.state.cluster.storage_cache.claim(key)
            if claim is not None and claim.selected_node and not claim.bound:
                self.world.bind_claim(key)

    def _group(self) -> None:
        """A tree, a group of gangs, a gang or a pod; the order of creation is not that
        of arrival.
        """
        dice = self.dice
        common = {
            "priority": dice.choice((0, 0, 5, 10)) if self.manner.preempts else 0,
            "creation_s": self.world.wall_s() - dice.choice((0, 0, 50, 500)),
        }
        kind = dice.choice(("tree", "tree", "tree", "pair", "gang", "pod"))
        if kind == "tree":
            root = self._tree(self._name("t"), "", common, depth=dice.choice((1, 1, 2)))
        elif kind == "pair":
            names = [self._name("g"), self._name("g")]
            listed = [f"{NAMESPACE}/{name}" for name in names]
            root = Part(names[0], 2, [self._gang(name, common, groups=listed) for name in names])
        else:
            root = self._gang(self._name("g"), common)
        self.roots.append(root)
        leaves = [*root.leaves()]
        dice.shuffle(leaves)
        for leaf in leaves:
            # Some come late, or never.
            self._fill(leaf, max(0, leaf.kind["members"] - dice.choice((0, 0, 0, 0, 1))))

    def _tree(self, name: str, parent: str, common: dict[str, Any], *, depth: int) -> Part:
        children = []
        for number in range(self.dice.randint(1, 3)):
            child = f"{name}-{number}"
            is_deep = depth > 1 and self.dice.random() < 0.5
            children.append(
                self._tree(child, name, common, depth=depth - 1)
                if is_deep
                else self._gang(child, common, parent=name)
            )
        least = self.dice.choice(
            (len(children), len(children), self.dice.randint(0, len(children)))
        )
        part = Part(name, least, children, is_in_one_rack=self.dice.random() < 0.25)
        stated = {keys.MIN_CHILDREN[0]: str(least), keys.PARENT[0]: parent}
        stated |= {keys.TOPOLOGY[0]: RACK} if part.is_in_one_rack else {}
        marks = tuple(sorted((key, value) for key, value in stated.items() if value))
        self.world.declare(pod_group(name, 1, gang_metadata=marks))
        return part

    def _gang(self, name: str, common: dict[str, Any], **stated: Any) -> Part:
        dice = self.dice
        members = dice.randint(1, 3)
        least = dice.choice((members, members, dice.randint(0, members)))
        part = Part(name, least, is_in_one_rack=dice.random() < 0.2)
        topology = RACK if part.is_in_one_rack else ""
        part.marks = gang_metadata(name, min_member=least, topology=topology, **stated)
        claims = ("", "own", "shared", "device", "shared device") if self.manner.claims else ("",)
        part.kind = {
            **common,
            "members": members,
            "gpus": dice.choice((1, 1, 2, 4)),
            "other": dice.choice((0, 0, 1)),
            "claims": dice.choice(claims),
        }
        if part.kind["claims"].startswith("shared"):
            self._shared(part)
        return part

    def _fill(self, leaf: Part, number: int) -> None:
        for _ in range(number):
            name, kind = f"{leaf.name}.{len(leaf.pods)}", leaf.kind
            gpus = kind["gpus"] if not kind["other"] or len(leaf.pods) % 2 else 1
            fields = {key: kind[key] for key in ("priority", "creation_s")}
            uses = (self._claim(leaf, name),) if kind["claims"] else ()
            made = pod(
                name,
                uid=name,
                of=shape(gpus),
                gang_metadata=leaf.marks,
                claims=uses,
                grace_s=1,
                **fields,
            )
            leaf.pods.append(made.uid)
            self.world.create(made)

    def _claim(self, leaf: Part, name: str) -> ClaimUse:
        kind = leaf.kind["claims"]
        if kind.startswith("shared"):
            return ClaimUse(f"{leaf.name}-c", device=kind == "shared device")
        self._make(f"{name}-c", is_device=kind == "device")
        return ClaimUse(f"{name}-c", device=kind == "device")

    def _shared(self, leaf: Part) -> None:
        others = tuple(f"other-{at}" for at in range(self.dice.choice((0, 0, 0, 254))))
        self._make(
            f"{leaf.name}-c", is_device=leaf.kind["claims"] == "shared device", others=others
        )

    def _make(self, name: str, *, is_device: bool, others: tuple[str, ...] = ()) -> None:
        if not is_device:
            modes = ("ReadWriteMany",)
            claim = Claim(
                NAMESPACE,
                name,
                uid=name,
                resource_version="5",
                storage_class="late",
                access_modes=modes,
            )
            self.world.say(Applied(claim))
            if self.dice.random() < 0.2:
                self.world.unmade.add(claim.key)
            return
        asks = DeviceClaim(namespace=NAMESPACE, name=name, uid=name, requests=ASKS)
        made = ResourceClaim(NAMESPACE, name, uid=name, resource_version="5", asks=asks)
        # Others use it: it has devices that all nodes reach.
        made = msgspec.structs.replace(made, allocated=True, reserved=others) if others else made
        self.world.say(Applied(made))


EVENTS = ("group", "group", "room", "room", "node", "cordon", "lost", "member", "member", "restart")


def _facts(gang: Gang) -> object:
    waiting = sorted(each.name for each in (*gang.pending, *gang.retry))
    return (gang.min_member, gang.satisfied, gang.permitted_min, gang.bound, gang.nodes, waiting)
