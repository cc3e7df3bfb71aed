"""The verifier: the last look at a verdict before its commit (semantics B2).

Invariant: it shares no code with filters, searches, rounds and trees. It compares what a verdict
places with members, free room, labels and claims, in plain integers. An objection to a verdict that
was made from exactly this state means that the plan is wrong; after a change in between it means
that the plan is outdated (B2).

Nearly all plans are right, so what is cheap is asked first: a plan whose nodes have room for
everything that it places needs no sum by verdict, in whichever order they are committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from gangsched.model.devices import DeviceId, DeviceResult
from gangsched.model.gang import Gang, MatchPolicy, Placement, gang_to_come
from gangsched.model.gpu_policy import NO_CONSTRAINTS, PRODUCT_LABEL, SliceLayer
from gangsched.model.objects import Pod, Shape
from gangsched.model.parts import broken_part, root_of
from gangsched.model.plan import Plan, Verdict
from gangsched.model.snapshot import Ints, Snapshot
from gangsched.model.storage import READ_WRITE_ONCE_POD, Selection
from gangsched.model.tree import composites_of, gangs_of, part_id
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import RELEASABLE, MemberStore
from gangsched.state.members import STARTED, Member, State
from gangsched.state.told_apart import ToldApart

PLACEABLE = frozenset({State.PENDING, State.RETRY, State.HELD, State.KEPT})
"""The states of members that a plan may give a node."""
FAILED = frozenset({State.RETRY, State.KEPT})
STANDS = (*STARTED, State.HELD)
"""The states of members that fix the domains of the others."""
MOST_IN_ALL = 2**62
"""The largest sum of amounts that is made in 64 bits."""
MOST_CONSUMERS = 256
"""The API server's limit of `reservedFor` of a ResourceClaim."""


@dataclass(slots=True)
class _Plan:
    """What the verdicts of one plan have taken so far from its snapshot."""

    snapshot: Snapshot
    #: The pods that verdicts placed so far.
    uids: set[str] = field(default_factory=set)
    #: All nodes have the room for everything that the plan places, even without its releases.
    is_roomy: bool = False
    #: A pod of the plan has host ports.
    has_ports: bool = False
    #: A pod of the plan has claims.
    has_claims: bool = False
    #: `left[node][row]` of resources, for nodes that got pods.
    left: dict[str, list[int]] = field(default_factory=dict)
    #: Rows of the snapshot that a shape requests, with the amounts; -1 for what no node offers.
    rows: dict[Shape, list[tuple[int, int]]] = field(default_factory=dict)
    #: By claim, the pods that it is reserved for.
    consumers: dict[str, set[str]] = field(default_factory=dict)
    #: By volume, the claim that gets it.
    volumes: dict[str, str] = field(default_factory=dict)
    #: Devices of claims, each with the key of the claim; None until a verdict allocates one.
    held: dict[DeviceId, str] | None = None
    #: Devices of which claims have shares.
    shared: set[DeviceId] = field(default_factory=set)


@dataclass(slots=True)
class _Made:
    """A verdict, read once. The first `starting` of those `placed` start, the others are held;
    `members[i]` is the member of `placed[i]`, None for a member to come. `moved` are numbers of
    pods that come to a node, or leave it.
    """

    group: GroupRecord
    placed: Sequence[Placement]
    starting: int
    released: Set[str]
    members: list[Member | None] = field(default_factory=list)
    moved: dict[tuple[str, Shape], int] = field(default_factory=dict)

    def gang(self, number: int) -> str:
        """The gang of a placement."""
        member = self.members[number]
        if member is not None:
            return member.gang

        return gang_to_come(self.placed[number].pod.uid)

    def new(self) -> Counter[str]:
        """The number of members that start, by gang."""
        return Counter([self.gang(number) for number in range(self.starting)])

    def of(self, gangs: Iterable[str]) -> list[Placement]:
        """Placements of these gangs."""
        wanted = frozenset(gangs)
        return [each for number, each in enumerate(self.placed) if self.gang(number) in wanted]


def _may_release(member: Member) -> bool:
    """Whether a member has room that can be taken back: it is not bound, and nothing is being
    written for it.
    """
    if member.state is State.WAITING_FOR_CLAIMS:
        return member.wait is not None and member.wait.is_written

    return member.state in RELEASABLE


class Verifier:
    """Verifies the verdicts of one plan after the other, each right before its commit."""

    def __init__(self, members: MemberStore, cluster: Cluster, registry: Registry) -> None:
        self._members = members
        self._cluster = cluster
        self._registry = registry
        self._plan = _Plan(cluster.snapshot())
        self._told_apart = ToldApart()

    def begin(self, plan: Plan, snapshot: Snapshot) -> None:
        """Begin with the verdicts of a plan that was made from this snapshot."""
        placed: list[Placement] = []
        releases: list[str] = []

        for verdict in plan.verdicts:
            if verdict.moves or verdict.rooms:
                placed += verdict.binds
                placed += verdict.holds
                placed += verdict.rooms
                releases += verdict.releases

        pods = [placement.pod for placement in placed]
        nodes = [placement.node for placement in placed]
        shapes = [pod.shape for pod in pods]
        kinds = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}

        self._plan = _Plan(snapshot)
        self._plan.has_claims = bool([pod for pod in pods if pod.claims])
        self._plan.has_ports = any(map(_has_ports, kinds))
        self._plan.is_roomy = _is_roomy(shapes, nodes, kinds, snapshot)

        if not self._plan.is_roomy:
            # At once: of 400 verdicts on one pod each, this took half of the time.
            index = snapshot.table.index
            touched = {*nodes, *map(self._members.node_of, releases)}
            known = [name for name in touched if name in index]
            columns = snapshot.free[:, [index[name] for name in known]].T.tolist()
            self._plan.left.update(zip(known, columns, strict=True))

    def objection(self, group: GroupRecord, verdict: Verdict) -> str:
        """Why a verdict must not be committed, in one clause; "" if nothing speaks against it."""
        if not verdict.moves and not verdict.rooms:
            return ""

        starting = (*verdict.binds, *verdict.rooms)
        placed = (*starting, *verdict.holds) if verdict.holds else starting
        made = _Made(group, placed, len(starting), frozenset(verdict.releases))

        why = next(self._objections(made), "")
        if why:
            self._count(made, -1)
        else:
            self._plan.uids.update([placement.pod.uid for placement in placed])

        return why

    def _objections(self, made: _Made) -> Iterator[str]:
        """The objections, one after the other."""
        if made.released:
            yield from self._of_releases(made)

        yield from self._of_pods(made)
        if not self._plan.is_roomy:
            yield from self._of_nodes(made)

        if self._plan.has_ports:
            nodes = [at.node for at in made.placed if _has_ports(at.pod.shape)]
            for node in dict.fromkeys(nodes):
                yield from self._of_ports(node, made)

        if self._plan.has_claims:
            yield from self._of_claims(made)

        gangs = made.group.gangs
        if len(gangs) > 1 or not self._registry.gangs[gangs[0]].plain:
            yield from self._of_parts(made)
            yield from self._of_domains(made)

    # --- pods ------------------------------------------------------------------------------------

    def _of_releases(self, made: _Made) -> Iterator[str]:
        """Only what the group holds is released."""
        for uid in made.released:
            member = self._members.get(uid)
            if member is None or member.gang not in made.group.gangs or not _may_release(member):
                yield f"pod {uid} is released and holds nothing"

    def _of_pods(self, made: _Made) -> Iterator[str]:
        """Each pod is a waiting member of the group, and is placed once in the whole plan."""
        known = self._members.get
        gangs = made.group.gangs
        pending = State.PENDING
        made.members = [known(placement.pod.uid) for placement in made.placed]

        # Nearly all of thousands of pods are just pending, and are looked at in one expression.
        odd = [
            number
            for number, member in enumerate(made.members)
            if member is None or member.state is not pending or member.gang not in gangs
        ]
        for number in odd:
            placement = made.placed[number]
            why = self._misplaced(placement, made.members[number], made)
            if why:
                yield f"pod {placement.pod.key} {why}"

        uids = {placement.pod.uid for placement in made.placed}
        if len(uids) < len(made.placed) or not self._plan.uids.isdisjoint(uids):
            yield "a pod is placed twice"

    def _misplaced(self, placement: Placement, member: Member | None, made: _Made) -> str:
        uid = placement.pod.uid
        if member is None:
            if gang_to_come(uid) in made.group.gangs:
                return ""

            return "is not known"

        if member.gang not in made.group.gangs:
            return "is of another group"
        if member.state not in PLACEABLE:
            return f"is {member.state}"

        moves = member.node and member.node != placement.node and uid not in made.released
        return f"has room on node {member.node}" if moves else ""

    # --- nodes -----------------------------------------------------------------------------------

    def _of_nodes(self, made: _Made) -> Iterator[str]:
        """Each node exists, and takes the sum of what the plan puts there beside what is there."""
        left = self._plan.left
        moved = made.moved

        for placement, member in zip(made.placed, made.members, strict=True):
            if placement.node not in left:
                yield f"node {placement.node} does not exist"

            # A held member has its room already.
            if member is None or not member.node or member.pod.uid in made.released:
                key = (placement.node, placement.pod.shape)
                moved[key] = moved.get(key, 0) + 1

        for uid in made.released:
            key = (self._members[uid].node, self._members[uid].pod.shape)
            moved[key] = moved.get(key, 0) - 1

        over = self._count(made, +1)
        if over:
            yield f"node {over} has too little room"

    def _count(self, made: _Made, sign: int) -> str:
        """Take the room of all that a verdict moves (+1), or give it back (-1); a node that had too
        little of it.
        """
        over = ""
        for (at, shape), number in made.moved.items():
            column = self._plan.left.get(at)
            if column is None or not number:
                continue

            for row, amount in self._rows(shape):
                if row >= 0:
                    column[row] -= sign * amount * number

                # Who leaves an over-full node does no harm.
                if number > 0 and (row < 0 or column[row] < 0):
                    over = at

        return over

    def _rows(self, shape: Shape) -> list[tuple[int, int]]:
        known = self._plan.rows.get(shape)
        if known is None:
            resources = self._plan.snapshot.resources
            known = self._plan.rows[shape] = [
                (resources.get(name, -1), amount) for name, amount in shape.requests
            ]

        return known

    def _of_ports(self, at: str, made: _Made) -> Iterator[str]:
        """No two pods on a node have the same host port."""
        there = {
            uid: pod for uid, pod in self._cluster.residents(at).items() if uid not in made.released
        }
        new = {}

        for placement in made.placed:
            if placement.node == at:
                new[placement.pod.uid] = placement.pod

        pods = [*{**there, **new}.values()]
        for pod in new.values():
            rivals = [
                port
                for other in pods
                if other.uid != pod.uid
                for port in other.shape.constraints.ports
            ]
            if any(
                port.conflicts(rival) for rival in rivals for port in pod.shape.constraints.ports
            ):
                yield f"a host port of pod {pod.key} is in use on node {at}"

    # --- claims ----------------------------------------------------------------------------------

    def _of_claims(self, made: _Made) -> Iterator[str]:
        """What only one may use is used by one, and each claim is decided for the node of
        its pod.
        """
        yield from self._of_exclusive(made)
        for placement in made.placed:
            for selection in placement.claims:
                yield from self._of_selection(selection, placement)

        yield from self._of_devices(
            [selection for placement in made.placed for selection in placement.claims]
        )

    def _of_exclusive(self, made: _Made) -> Iterator[str]:
        """A claim for one pod has one."""
        takers: defaultdict[str, set[str]] = defaultdict(set)
        for placement in made.placed:
            for use in placement.pod.claims:
                takers[use.key(placement.pod.namespace)].add(placement.pod.uid)

        claims = self._plan.snapshot.storage.claims
        users = self._cluster.storage_cache.users()

        for key, uids in takers.items():
            claim = claims.get(key)
            if claim is not None and READ_WRITE_ONCE_POD in claim.access_modes:
                there = {uid for uid, member in users.get(key, {}).items() if member.node}
                if len((there - made.released) | uids) > 1:
                    yield f"claim {key} is for one pod, and another one uses it"

    def _of_selection(self, selection: Selection, placement: Placement) -> Iterator[str]:
        """A decision is for the node of its pod, a volume goes to one claim, and a claim has room
        for its consumers.
        """
        plan = self._plan
        key = selection.key
        storage = self._plan.snapshot.storage

        if selection.node and selection.node != placement.node:
            yield f"claim {key} is decided for node {selection.node}, not {placement.node}"

        if selection.volume:
            given = storage.volumes.get(selection.volume)
            owner = given.claim if given is not None else None

            first = f"{owner.namespace}/{owner.name}" if owner is not None else key
            if plan.volumes.setdefault(selection.volume, first) != key:
                yield f"volume {selection.volume} is given to two claims"

        if selection.reserve and selection.consumer is None:
            known = storage.devices.get(key)
            pods = plan.consumers.setdefault(key, set(known.reserved if known is not None else ()))
            pods.add(placement.pod.uid)

            if len(pods) > MOST_CONSUMERS:
                yield f"claim {key} gets more than {MOST_CONSUMERS} consumers"

    def _of_devices(self, selections: Iterable[Selection]) -> Iterator[str]:
        """No device is allocated to two claims."""
        allocating = [selection for selection in selections if selection.allocation is not None]
        if not allocating:
            return

        held, shared = self._held()
        for selection in allocating:
            for result in _results(selection):
                holder = held.get(result.id, selection.key)
                if holder != selection.key or (not result.share and result.id in shared):
                    yield (
                        f"device {'/'.join(result.id)} is allocated to another claim than"
                        f" {selection.key}"
                    )

                _hold(result, selection.key, held, shared)

    def _held(self) -> tuple[dict[DeviceId, str], set[DeviceId]]:
        """Devices with the claims that have them, and those of which claims have shares; read once
        a plan.
        """
        plan = self._plan
        storage = self._plan.snapshot.storage

        if plan.held is None:
            plan.held = {}
            for key, claim in storage.devices.items():
                for result in (claim.asks.results or ()) if claim.asks is not None else ():
                    if not result.admin:
                        _hold(result, key, plan.held, plan.shared)

            for selection in chain.from_iterable(storage.selections.values()):
                for result in _results(selection):
                    _hold(result, selection.key, plan.held, plan.shared)

        return plan.held, plan.shared

    # --- parts -----------------------------------------------------------------------------------

    def _of_parts(self, made: _Made) -> Iterator[str]:
        """Nothing that had not started has less than its minimum afterwards."""
        if not made.starting:
            return

        gangs = made.group.gangs
        new = {gangs[0]: made.starting} if len(gangs) == 1 else made.new()

        views = [self._registry.view(gang) for gang in gangs]
        for view in views:
            if not view.free_running and (lack := _lack(view, new.get(view.id, 0), made)) > 0:
                yield f"gang {view.id} lacks {lack} of the {view.least} members that it needs"

        if len(views) == 1:
            return

        begun = {view.id: view.bound + view.succeeded for view in views if view.satisfied}
        # Members that others bound are no start: they count with those that join them, or if they
        # suffice.
        has = {
            view.id: view.bound for view in views if view.id in new or view.bound >= view.min_member
        }

        has = {
            view.id: new.get(view.id, 0) + begun.get(view.id, has.get(view.id, 0)) for view in views
        }
        if (part := broken_part(root_of(views, made.group.tree), has, begun)) is not None:
            yield f"part {part_id(part)} has less than its minimum"

    # --- domains ---------------------------------------------------------------------------------

    def _of_domains(self, made: _Made) -> Iterator[str]:
        """Every part is in one domain of each level that it requires, and every slice in one of its
        layer.
        """
        gangs = [self._registry.view(gang) for gang in made.group.gangs]
        tree = made.group.tree
        if tree is None and all(gang.constraints is NO_CONSTRAINTS for gang in gangs):
            return

        levels: list[tuple[tuple[str, ...], Sequence[str]]] = []
        if tree is None:
            keys = dict.fromkeys(key for gang in gangs for key in gang.constraints.topology)
            levels.append((tuple(keys), made.group.gangs))
        else:
            levels += [(gang.constraints.topology, (gang.id,)) for gang in gangs]
            levels += [
                (composite.topology, gangs_of(composite)) for composite in composites_of(tree)
            ]

        for wanted, inside in levels:
            if wanted:
                yield from self._apart(wanted, made.of(inside), self._standing(inside, made))

        for gang in gangs:
            if gang.constraints.same_product:
                new = []
                for placement in made.of((gang.id,)):
                    if self._is_accelerated(placement.pod):
                        new.append(placement)

                there = []
                for member in self._standing((gang.id,), made):
                    if self._is_accelerated(member.pod):
                        there.append(member)

                yield from self._apart((PRODUCT_LABEL,), new, there)

            for layer in gang.constraints.slices:
                yield from self._of_slices(gang, layer, made)

    def _apart(
        self,
        keys: Sequence[str],
        new: Iterable[Placement],
        there: Iterable[Member],
    ) -> Iterator[str]:
        """Pods that are not in one domain with those that have a node.

        Where changed labels have torn these apart, each of their domains is as good as the others.
        """
        domains = {self._domain(keys, placement.node) for placement in new}
        homes = {self._domain(keys, member.node) for member in there} - {None}

        if None in domains:
            yield f"a node lacks the label {' or '.join(keys)}"

        if not domains <= homes if homes else len(domains) > 1:
            yield f"pods that must be in one domain of {' and '.join(keys)} are in several"

    def _domain(self, keys: Sequence[str], name: str) -> tuple[str, ...] | None:
        node = self._cluster.nodes.get(name)
        if node is None or any(key not in node.labels for key in keys):
            return None

        found = [node.labels[key] for key in keys]
        for key in keys:
            for coarser in self._told_apart.by(key, self._plan.snapshot.table):
                found.append(node.labels.get(coarser, ""))

        return tuple(found)

    def _of_slices(self, gang: Gang, layer: SliceLayer, made: _Made) -> Iterator[str]:
        """Slices by index; without indexes any members of a domain are one, of which one may begin
        that is not full.
        """
        new = made.of((gang.id,))
        there = self._standing((gang.id,), made)
        key = (layer.topology,)

        if gang.indexed:
            for number in {placement.pod.index // layer.size for placement in new}:
                own = [
                    placement for placement in new if placement.pod.index // layer.size == number
                ]
                yield from self._apart(
                    key,
                    own,
                    [member for member in there if member.pod.index // layer.size == number],
                )

            return

        before = Counter(self._domain(key, member.node) for member in there)
        after = before + Counter(self._domain(key, placement.node) for placement in new)
        if after[None] > before[None]:
            yield f"a node lacks the label {layer.topology}"

        begun = [
            each
            for each, number in after.items()
            if number % layer.size and not before[each] % layer.size
        ]
        if len(begun) > 1:
            yield f"{len(begun)} slices of {layer.size} are torn apart"

    def _standing(self, gangs: Iterable[str], made: _Made) -> list[Member]:
        """Members of these gangs that stay where they are."""
        members = chain.from_iterable(self._registry.gangs[gang].of(*STANDS) for gang in gangs)
        return [member for member in members if member.pod.uid not in made.released]

    def _is_accelerated(self, pod: Pod) -> bool:
        return any(self._registry.policy.is_accelerator(name) for name, _ in pod.shape.requests)


def _has_ports(shape: Shape) -> bool:
    """Whether pods of a shape have host ports."""
    return bool(shape.inter_pod is not None and shape.inter_pod.ports)


def _is_roomy(
    shapes: Sequence[Shape],
    nodes: Sequence[str],
    kinds: Mapping[Shape, int],
    snapshot: Snapshot,
) -> bool:
    """Whether the nodes take all pods of a plan beside what is there: pod `i` is of `shapes[i]`,
    and goes to `nodes[i]`.

    `kinds` numbers the shapes. False if that is not certain, as where a node does not exist.
    """
    size = len(nodes)
    asks = _asks(kinds, snapshot.resources, size)
    index = snapshot.table.index

    try:
        at = np.fromiter(map(index.__getitem__, nodes), dtype=np.int64, count=size)
    except KeyError:
        return False

    kind_of = np.zeros(size, dtype=np.int64)
    if len(kinds) > 1:
        kind_of = np.fromiter(map(kinds.__getitem__, shapes), dtype=np.int64, count=size)

    for row, amounts in asks.items():
        if row < 0:
            return False

        taken = np.zeros(len(snapshot.table), dtype=np.int64)
        # Unbuffered: a node may occur many times.
        np.add.at(taken, at, amounts[kind_of])

        # Nobody is to be blamed for a node that is over-full already.
        taken = taken[at]
        if ((taken > snapshot.free[row][at]) & (taken > 0)).any():
            return False

    return True


def _asks(kinds: Mapping[Shape, int], resources: Mapping[str, int], pods: int) -> dict[int, Ints]:
    """By row of the snapshot what a pod of each kind requests; row -1 for what no node offers, or
    what so many `pods` might request beyond 64 bits.
    """
    asks: dict[int, Ints] = {}
    for shape, number in kinds.items():
        for name, amount in shape.requests:
            is_summed = amount <= MOST_IN_ALL // pods
            row = resources.get(name, -1) if is_summed else -1
            if row not in asks:
                asks[row] = np.zeros(len(kinds), dtype=np.int64)

            asks[row][number] = amount if is_summed else 0

    return asks


def _lack(gang: Gang, new: int, made: _Made) -> int:
    """How many members a gang lacks that starts `new` ones."""
    if gang.satisfied:
        # What Permit let through goes on alone (B3).
        again = [
            member
            for member in made.members[: made.starting]
            if member is not None and member.state in FAILED
        ]
        if new <= sum(member.gang == gang.id for member in again):
            return 0

    only_new = gang.match_policy is MatchPolicy.ONLY_WAITING
    if new:
        return gang.least - new - (0 if only_new else gang.bound)

    return 0


def _results(selection: Selection) -> Iterable[DeviceResult]:
    """Devices that a decision allocates, without those for administrators, which others
    may have.
    """
    results = selection.allocation.results if selection.allocation is not None else ()
    return (result for result in results if not result.admin)


def _hold(result: DeviceResult, key: str, held: dict[DeviceId, str], shared: set[DeviceId]) -> None:
    """Record that a claim has a device, or a share of it."""
    if result.share:
        shared.add(result.id)
    else:
        held.setdefault(result.id, key)
