"""The verifier: the last look at a verdict before its commit (semantics B2).

Invariant: it shares no code with filters, searches, rounds and trees. It compares what a verdict
places with members, free room, labels and claims, in plain integers. An objection to a verdict that
was made from exactly this state means that the plan is wrong; after a change in between it means
that the plan is outdated (B2).

Nearly all plans are right, so what is cheap is asked first: a plan of many pods whose nodes have
room for everything that it places needs no sum by verdict, in whichever order they are committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from gangsched.model.devices import DeviceId, DeviceResult
from gangsched.model.gang import Gang, MatchPolicy, Placement, gang_to_come
from gangsched.model.gpu_policy import PRODUCT_LABEL, SliceLayer
from gangsched.model.objects import Pod, Shape
from gangsched.model.parts import broken_part, root_of
from gangsched.model.plan import Plan, Verdict
from gangsched.model.snapshot import Snapshot
from gangsched.model.storage import READ_WRITE_ONCE_POD, Selection
from gangsched.model.tree import part_id, required_levels
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import RELEASABLE, MemberStore
from gangsched.state.members import STARTED, Member, State
from gangsched.state.roominess import is_roomy
from gangsched.state.told_apart import ToldApart

PLACEABLE = frozenset({State.PENDING, State.RETRY, State.HELD, State.KEPT})
"""The states of members that a plan may give a node."""
FAILED = frozenset({State.RETRY, State.KEPT})
STANDS = (*STARTED, State.HELD)
"""The states of members that fix the domains of the others."""
MANY = 30
"""Pods of a plan from which on one sum over all of them takes less time than sums by verdict."""
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
class _ReadVerdict:
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
        return [
            placement for number, placement in enumerate(self.placed) if self.gang(number) in wanted
        ]


def _may_release(member: Member) -> bool:
    """Whether a member has room that can be taken back: it is not bound, and nothing is being
    written for it.
    """
    if member.state is State.WAITING_FOR_CLAIMS:
        return member.wait is not None and member.wait.is_written

    return member.state in RELEASABLE


class Verifier:
    """Verifies the verdicts of one plan after the other, each right before its commit."""

    def __init__(
        self,
        members: MemberStore,
        cluster: Cluster,
        registry: Registry,
    ) -> None:
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

        self._plan = _Plan(snapshot)
        if not placed and not releases:
            return

        pods = [placement.pod for placement in placed]
        nodes = [placement.node for placement in placed]
        shapes = [pod.shape for pod in pods]
        distinct = dict.fromkeys(shapes)
        kinds = {shape: number for number, shape in enumerate(distinct)}

        self._plan.has_claims = bool([pod for pod in pods if pod.claims])
        self._plan.has_ports = any(map(_has_ports, kinds))
        if len(placed) >= MANY:
            self._plan.is_roomy = is_roomy(shapes, nodes, kinds, snapshot)

        if self._plan.is_roomy:
            return

        # At once: of 400 verdicts on one pod each, this took half of the time.
        index = snapshot.table.index
        touched = {*nodes, *map(self._members.node_of, releases)}
        known = [name for name in touched if name in index]
        numbers = [index[name] for name in known]
        columns = snapshot.free[:, numbers].T.tolist()
        self._plan.left.update(zip(known, columns, strict=True))

    def objection(self, group: GroupRecord, verdict: Verdict) -> str:
        """Why a verdict must not be committed, in one clause; "" if nothing speaks against it."""
        if not verdict.moves and not verdict.rooms:
            return ""

        starting = verdict.binds + verdict.rooms
        placed = starting + verdict.holds
        read = _ReadVerdict(group, placed, len(starting), frozenset(verdict.releases))

        why = next(self._objections(read), "")
        if why:
            self._count(read, -1)
        else:
            self._plan.uids.update([placement.pod.uid for placement in placed])

        return why

    def _objections(self, read: _ReadVerdict) -> Iterator[str]:
        """The objections, one after the other."""
        if read.released:
            yield from self._of_releases(read)

        yield from self._of_pods(read)
        if not self._plan.is_roomy:
            yield from self._of_nodes(read)

        if self._plan.has_ports:
            nodes = []
            for placement in read.placed:
                if _has_ports(placement.pod.shape):
                    nodes.append(placement.node)

            for node in dict.fromkeys(nodes):
                yield from self._of_ports(node, read)

        if self._plan.has_claims:
            yield from self._of_claims(read)

        gangs = read.group.gangs
        if len(gangs) > 1 or not self._registry.gangs[gangs[0]].plain:
            yield from self._of_parts(read)
            yield from self._of_domains(read)

    # --- pods ------------------------------------------------------------------------------------

    def _of_releases(self, read: _ReadVerdict) -> Iterator[str]:
        """Only what the group holds is released."""
        gangs = read.group.gangs
        for uid in read.released:
            member = self._members.get(uid)
            if member is None or member.gang not in gangs or not _may_release(member):
                yield f"pod {uid} is released and holds nothing"

    def _of_pods(self, read: _ReadVerdict) -> Iterator[str]:
        """Each pod is a waiting member of the group, and is placed once in the whole plan."""
        known = self._members.get
        gangs = read.group.gangs
        pending = State.PENDING
        read.members = [known(placement.pod.uid) for placement in read.placed]

        # Nearly all of thousands of pods are just pending, and are looked at in one expression.
        odd = [
            number
            for number, member in enumerate(read.members)
            if member is None or member.state is not pending or member.gang not in gangs
        ]
        for number in odd:
            placement = read.placed[number]
            why = self._misplaced(placement, read.members[number], read)
            if why:
                yield f"pod {placement.pod.key} {why}"

        uids = {placement.pod.uid for placement in read.placed}
        if len(uids) < len(read.placed) or not self._plan.uids.isdisjoint(uids):
            yield "a pod is placed twice"

    def _misplaced(
        self,
        placement: Placement,
        member: Member | None,
        read: _ReadVerdict,
    ) -> str:
        uid = placement.pod.uid
        if member is None:
            if gang_to_come(uid) in read.group.gangs:
                return ""

            return "is not known"

        if member.gang not in read.group.gangs:
            return "is of another group"
        if member.state not in PLACEABLE:
            return f"is {member.state}"

        is_elsewhere = member.node and member.node != placement.node
        if is_elsewhere and uid not in read.released:
            return f"has room on node {member.node}"

        return ""

    # --- nodes -----------------------------------------------------------------------------------

    def _of_nodes(self, read: _ReadVerdict) -> Iterator[str]:
        """Each node exists, and takes the sum of what the plan puts there beside what is there."""
        left = self._plan.left
        moved = read.moved

        for placement, member in zip(read.placed, read.members, strict=True):
            if placement.node not in left:
                yield f"node {placement.node} does not exist"

            # A held member has its room already.
            if member is None or not member.node or member.pod.uid in read.released:
                key = (placement.node, placement.pod.shape)
                moved[key] = moved.get(key, 0) + 1

        for uid in read.released:
            member = self._members[uid]
            key = (member.node, member.pod.shape)
            moved[key] = moved.get(key, 0) - 1

        over = self._count(read, +1)
        if over:
            yield f"node {over} has too little room"

    def _count(self, read: _ReadVerdict, sign: int) -> str:
        """Take the room of all that a verdict moves (+1), or give it back (-1); a node that had too
        little of it.
        """
        over = ""
        for (at, shape), number in read.moved.items():
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
        if known is not None:
            return known

        resources = self._plan.snapshot.resources
        rows = [(resources.get(name, -1), amount) for name, amount in shape.requests]
        self._plan.rows[shape] = rows
        return rows

    def _of_ports(self, node: str, read: _ReadVerdict) -> Iterator[str]:
        """No two pods on a node have the same host port."""
        pods = {}
        for uid, pod in self._cluster.residents(node).items():
            if uid not in read.released:
                pods[uid] = pod

        new = []
        for placement in read.placed:
            if placement.node == node:
                new.append(placement.pod)
                pods[placement.pod.uid] = placement.pod

        for pod in new:
            others = [other for other in pods.values() if other.uid != pod.uid]
            if any(_conflict(pod, other) for other in others):
                yield f"a host port of pod {pod.key} is in use on node {node}"

    # --- claims ----------------------------------------------------------------------------------

    def _of_claims(self, read: _ReadVerdict) -> Iterator[str]:
        """What only one may use is used by one, and each claim is decided for the node of
        its pod.
        """
        yield from self._of_exclusive(read)

        selections: list[Selection] = []
        for placement in read.placed:
            selections += placement.claims
            for selection in placement.claims:
                yield from self._of_selection(selection, placement)

        yield from self._of_devices(selections)

    def _of_exclusive(self, read: _ReadVerdict) -> Iterator[str]:
        """A claim for one pod has one."""
        takers: defaultdict[str, set[str]] = defaultdict(set)
        for placement in read.placed:
            pod = placement.pod
            for use in pod.claims:
                takers[use.key(pod.namespace)].add(pod.uid)

        claims = self._plan.snapshot.storage.claims
        users = self._cluster.storage_cache.users()

        for key, uids in takers.items():
            claim = claims.get(key)
            if claim is None or READ_WRITE_ONCE_POD not in claim.access_modes:
                continue

            running = {uid for uid, member in users.get(key, {}).items() if member.node}
            staying = running - read.released
            if len(staying | uids) > 1:
                yield f"claim {key} is for one pod, and another one uses it"

    def _of_selection(self, selection: Selection, placement: Placement) -> Iterator[str]:
        """A decision is for the node of its pod, a volume goes to one claim, and a claim has room
        for its consumers.
        """
        plan = self._plan
        key = selection.key
        storage = plan.snapshot.storage

        if selection.node and selection.node != placement.node:
            yield f"claim {key} is decided for node {selection.node}, not {placement.node}"

        if selection.volume:
            volume = storage.volumes.get(selection.volume)
            owner = key
            if volume is not None and volume.claim is not None:
                owner = f"{volume.claim.namespace}/{volume.claim.name}"

            if plan.volumes.setdefault(selection.volume, owner) != key:
                yield f"volume {selection.volume} is given to two claims"

        if selection.reserve and selection.consumer is None:
            claim = storage.devices.get(key)
            reserved = claim.reserved if claim is not None else ()
            pods = plan.consumers.setdefault(key, set(reserved))
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
        if plan.held is not None:
            return plan.held, plan.shared

        storage = plan.snapshot.storage
        plan.held = {}
        for key, claim in storage.devices.items():
            allocated = claim.asks.results if claim.asks is not None else None
            for result in allocated or ():
                if not result.admin:
                    _hold(result, key, plan.held, plan.shared)

        for selection in chain.from_iterable(storage.selections.values()):
            for result in _results(selection):
                _hold(result, selection.key, plan.held, plan.shared)

        return plan.held, plan.shared

    # --- parts -----------------------------------------------------------------------------------

    def _of_parts(self, read: _ReadVerdict) -> Iterator[str]:
        """Nothing that had not started has less than its minimum afterwards."""
        if not read.starting:
            return

        gangs = read.group.gangs
        new = {gangs[0]: read.starting} if len(gangs) == 1 else read.new()
        views = [self._registry.view(gang) for gang in gangs]
        for view in views:
            lack = 0
            if not view.free_running:
                lack = _lack(view, new.get(view.id, 0), read)

            if lack > 0:
                yield f"gang {view.id} lacks {lack} of the {view.least} members that it needs"

        if len(views) == 1:
            return

        begun = {}
        counts = {}
        for view in views:
            before = 0
            if view.satisfied:
                before = view.bound + view.succeeded
                begun[view.id] = before

            # Members that others bound are no start: they count with those that join them, or if
            # they suffice.
            elif view.id in new or view.bound >= view.min_member:
                before = view.bound

            counts[view.id] = new.get(view.id, 0) + before

        part = broken_part(root_of(read.group.root, views), counts, begun)
        if part is not None:
            yield f"part {part_id(part) or read.group.id} has less than its minimum"

    # --- domains ---------------------------------------------------------------------------------

    def _of_domains(self, read: _ReadVerdict) -> Iterator[str]:
        """Every part is in one domain of each level that it requires, and every slice in one of its
        layer.
        """

        def of_gang(gang_id: str) -> tuple[str, ...]:
            return self._registry.view(gang_id).constraints.topology

        for labels, inside in required_levels(read.group.root, of_gang):
            if labels:
                standing = self._standing(inside, read)
                yield from self._apart(labels, read.of(inside), standing)

        for gang_id in read.group.gangs:
            gang = self._registry.view(gang_id)
            if gang.constraints.same_product:
                yield from self._of_product(gang, read)

            for layer in gang.constraints.slices:
                yield from self._of_slices(gang, layer, read)

    def _of_product(self, gang: Gang, read: _ReadVerdict) -> Iterator[str]:
        """Members with accelerators are on nodes with the same product."""
        new = []
        for placement in read.of((gang.id,)):
            if self._is_accelerated(placement.pod):
                new.append(placement)

        standing = []
        for member in self._standing((gang.id,), read):
            if self._is_accelerated(member.pod):
                standing.append(member)

        yield from self._apart((PRODUCT_LABEL,), new, standing)

    def _apart(
        self,
        keys: Sequence[str],
        new: Iterable[Placement],
        standing: Iterable[Member],
    ) -> Iterator[str]:
        """Pods that are not in one domain with those that have a node.

        Where changed labels have torn these apart, each of their domains is as good as the
        others.
        """
        domains = {self._domain(keys, placement.node) for placement in new}
        homes = {self._domain(keys, member.node) for member in standing} - {None}

        if None in domains:
            yield f"a node lacks the label {' or '.join(keys)}"

        is_together = domains <= homes if homes else len(domains) <= 1
        if not is_together:
            yield f"pods that must be in one domain of {' and '.join(keys)} are in several"

    def _domain(
        self,
        keys: Sequence[str],
        name: str,
    ) -> tuple[str, ...] | None:
        node = self._cluster.nodes.get(name)
        if node is None or any(key not in node.labels for key in keys):
            return None

        values = [node.labels[key] for key in keys]
        table = self._plan.snapshot.table
        for key in keys:
            for coarser in self._told_apart.by(key, table):
                values.append(node.labels.get(coarser, ""))

        return tuple(values)

    def _of_slices(
        self,
        gang: Gang,
        layer: SliceLayer,
        read: _ReadVerdict,
    ) -> Iterator[str]:
        """Slices by index; without indexes any members of a domain are one, of which one may begin
        that is not full.
        """
        new = read.of((gang.id,))
        standing = self._standing((gang.id,), read)
        key = (layer.topology,)

        if gang.indexed:
            for number in {placement.pod.index // layer.size for placement in new}:
                own = [
                    placement for placement in new if placement.pod.index // layer.size == number
                ]
                own_standing = [
                    member for member in standing if member.pod.index // layer.size == number
                ]
                yield from self._apart(key, own, own_standing)

            return

        # What failed in a start that was whole stands where it is kept, too.
        there = [*standing, *self._standing((gang.id,), read, State.KEPT)]
        uids = {member.pod.uid for member in there}
        before = Counter(self._domain(key, member.node) for member in there)
        after = before + Counter(
            self._domain(key, placement.node) for placement in new if placement.pod.uid not in uids
        )
        if after[None] > before[None]:
            yield f"a node lacks the label {layer.topology}"

        begun = 0
        for domain, number in after.items():
            was_full = not before[domain] % layer.size
            if was_full and number % layer.size:
                begun += 1

        if begun > 1:
            yield f"{begun} slices of {layer.size} are torn apart"

    def _standing(
        self,
        gangs: Iterable[str],
        read: _ReadVerdict,
        *states: State,
    ) -> list[Member]:
        """Members of these gangs that stay where they are, in the states that fix the others'
        domains unless given; not those of an earlier run, beside which another one starts (I6).
        """
        standing: list[Member] = []
        for gang in gangs:
            record = self._registry.gangs[gang]
            members: Sequence[Member] = record.of(*(states or STANDS))
            if record.begins_beside:
                members = record.of_start(members)

            for member in members:
                if member.pod.uid not in read.released:
                    standing.append(member)

        return standing

    def _is_accelerated(self, pod: Pod) -> bool:
        policy = self._registry.policy
        return any(policy.is_accelerator(name) for name, _ in pod.shape.requests)


def _has_ports(shape: Shape) -> bool:
    """Whether pods of a shape have host ports."""
    return bool(shape.inter_pod is not None and shape.inter_pod.ports)


def _conflict(pod: Pod, other: Pod) -> bool:
    """Whether two pods have a host port in common."""
    rivals = other.shape.constraints.ports
    for port in pod.shape.constraints.ports:
        if any(port.conflicts(rival) for rival in rivals):
            return True

    return False


def _lack(
    gang: Gang,
    new: int,
    read: _ReadVerdict,
) -> int:
    """How many members a gang lacks that starts `new` ones."""
    if gang.satisfied:
        # What Permit let through goes on alone (B3).
        failed = 0
        for member in read.members[: read.starting]:
            if member is not None and member.state in FAILED and member.gang == gang.id:
                failed += 1

        if new <= failed:
            return 0

    if not new:
        return 0

    if gang.match_policy is MatchPolicy.ONLY_WAITING:
        return gang.least - new

    return gang.least - new - gang.bound


def _results(selection: Selection) -> Iterable[DeviceResult]:
    """Devices that a decision allocates, without those for administrators, which others
    may have.
    """
    if selection.allocation is None:
        return ()

    return [result for result in selection.allocation.results if not result.admin]


def _hold(
    result: DeviceResult,
    key: str,
    held: dict[DeviceId, str],
    shared: set[DeviceId],
) -> None:
    """Record that a claim has a device, or a share of it."""
    if result.share:
        shared.add(result.id)
    else:
        held.setdefault(result.id, key)
