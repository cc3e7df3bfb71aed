"""Scopes: on which part of the cluster a gang is tried, and in which order (the GPU policy).

Invariant: what a gang requires (`PlacementConstraints`) holds for every scope it is tried in; what is only preferred is
tried first and given up as soon as it would leave a member out. The strictest constraint of any gang holds for its
whole group. A group that asks for no accelerator and requires nothing is tried once, on all nodes.

Preferred is one GPU product and then the closest topology domain: the domain that already has members, then the one
whose nodes suit the pods' own soft preferences, then the one with the least room that is enough, so that large domains
stay whole. Only pods that ask for accelerators are kept in a preferred scope, and no domain is preferred for members
that say themselves that they would rather be apart (soft spread, preferred anti-affinity).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gangsched.core.permit import missing
from gangsched.core.preferences import node_penalty
from gangsched.core.reserve import Ledger, Scope
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import (
    NOT_SHARED,
    PRODUCT_LABEL,
    SHARED_RESOURCE,
    SHARED_SUFFIX,
    SHARING_LABEL,
    GpuPolicy,
)
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, Codes, Ints, NodeTable, RefusedNodes

AVOIDED = "node(s) rejected a member lately"
HELD_BACK = "node(s) are left for a moment to a group of higher priority that waits for room"
RESERVED = "node(s) are reserved for a gang that has waited for longer"
SHARED = "node(s) share their GPUs between pods, which a gang must ask for"

PREFERRED_TRIES = 2
"""Domains of one kind that are tried for a preference."""
PREFERRED_SHAPES = 64
"""Shapes of one group beyond which nothing is preferred, for each must be summed up by domain."""
REQUIRED_TRIES = 4
"""Domains that are tried for a requirement."""

EVERYWHERE = Scope(last=True)


def scopes(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Iterator[Scope]:
    """Where to try the pending members of `gangs`, best first and one after the other, until one attempt counts."""
    counts = Counter(pod.shape for gang in gangs for pod in gang.pending)
    topology, must = _required(group)
    if len(counts) <= PREFERRED_SHAPES and not _on_one_node(group, counts, ledger):
        for keys in _label_sets(must, ledger, spread=any(map(_prefers_spreading, counts))):
            if keys != must:
                domains = Domains.of(keys, group, counts, ledger, topology)
                wanted = domains.best(sum(counts.values()))[:PREFERRED_TRIES]
                yield from (replace(_scope(keys, domains.codes, n, topology, ledger), whole=True) for n in wanted)
    yield from required(group, gangs, ledger)


def required(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Iterator[Scope]:
    """The scopes that nothing preferred narrows, best first: the required domains, or all nodes."""
    topology, must = _required(group)
    if not must:
        yield EVERYWHERE
        return
    counts = Counter(pod.shape for gang in gangs for pod in gang.pending)
    domains = Domains.of(must, group, counts, ledger, topology)
    enough = domains.best(sum(missing(gang, 0) for gang in gangs))
    tried = enough[:REQUIRED_TRIES] or domains.best(0)[-1:] or [0]
    for n in tried:
        yield replace(_scope(must, domains.codes, n, topology, ledger), last=n == tried[-1])


def _on_one_node(group: Group, counts: Mapping[Shape, int], ledger: Ledger) -> bool:
    """Whether no preference matters: nothing asks for an accelerator, or one node takes all that does."""
    accelerated = [shape for shape in counts if ledger.accelerated(shape)]
    if len(accelerated) != 1:
        return not accelerated
    return int(usable(accelerated[0], group, ledger).max(initial=0)) >= counts[accelerated[0]]


def home(group: Group, ledger: Ledger) -> Scope:
    """Where single members of a group that runs already may go: with the others, if the group requires it."""
    topology, must = _required(group)
    nodes = _anchors(group, ledger)
    if not must or not nodes.size:
        return EVERYWHERE
    codes = _codes(must, ledger.table)
    there = codes[nodes][codes[nodes] >= 0]
    return _scope(must, codes, int(np.bincount(there).argmax()), topology, ledger) if there.size else EVERYWHERE


def required_scopes(group: Group, ledger: Ledger) -> list[Scope]:
    """Each domain that could hold a group which requires one; where its members are, if any has a node there.

    All nodes where nothing is required.
    """
    topology, must = _required(group)
    if not must:
        return [EVERYWHERE]
    codes, anchors = _codes(must, ledger.table), _anchors(group, ledger)
    there = np.unique(codes[anchors][codes[anchors] >= 0])
    domains = there if there.size else np.unique(codes[codes >= 0])
    return [_scope(must, codes, code, topology, ledger) for code in domains.tolist()]


def _required(group: Group) -> tuple[str, tuple[str, ...]]:
    """The node label whose domain must hold the group ("" for none), and all labels that its nodes must share."""
    topology = min((gang.constraints.topology for gang in group.gangs if gang.constraints.topology), default="")
    product = PRODUCT_LABEL if any(gang.constraints.same_product for gang in group.gangs) else ""
    return topology, tuple(dict.fromkeys(key for key in (topology, product) if key))


def required_domains(group: Group, ledger: Ledger) -> Codes | None:
    """`codes[n]`: which of the domains that must hold the group has node `n`, -1 for none; None if nothing is required.

    Pods without an accelerator are bound to a domain of a required topology only.
    """
    _, must = _required(group)
    return _codes(must, ledger.table) if must else None


def look_ahead(table: NodeTable, policy: GpuPolicy) -> None:
    """Read the labels that are asked of all nodes for any gang with GPUs, before one comes: 10 ms on 15,000 nodes."""
    for key in (*policy.topology_keys, PRODUCT_LABEL, SHARING_LABEL):
        table.label_column(key)


def closed(group: Group, shape: Shape, ledger: Ledger) -> Iterator[RefusedNodes]:
    """Nodes that are closed to pods of `shape` for a reason of the group."""
    if group.avoid:
        yield RefusedNodes(AVOIDED, ledger.table.having(group.avoid))
    accelerated = ledger.accelerated(shape)
    if accelerated and not _may_share(group, shape):
        stated = _having(SHARING_LABEL, lambda value: value not in NOT_SHARED, ledger.table)
        named = _having(PRODUCT_LABEL, lambda value: value.endswith(SHARED_SUFFIX), ledger.table)
        yield from (RefusedNodes(SHARED, mask) for mask in (stated, named) if mask is not None)
    for nodes in _held_back(group, ledger):
        yield RefusedNodes(HELD_BACK, nodes)
    inside = ledger.scope.accelerated if accelerated else ledger.scope.others
    if inside is not None:
        yield RefusedNodes(ledger.scope.text, ~inside)


def kept_from(group: Group, shape: Shape, ledger: Ledger) -> Iterator[RefusedNodes]:
    """Nodes with room for a pod of `shape` of which reservations leave the group none (H8)."""
    if ledger.kept is not None:
        room = ledger.room(shape)
        yield RefusedNodes(RESERVED, (room > 0) & (ledger.kept.narrow(shape, room, group) <= 0))


def standing(group: Group, shape: Shape, ledger: Ledger) -> Hashable:
    """Equal for groups to whose pods of `shape` the same nodes are closed now."""
    scope = ledger.scope
    everywhere = scope.accelerated is None and scope.others is None
    kept = None if ledger.kept is None else ledger.kept.standing(group)
    held_back = ledger.held_back and sorted(
        each for each, (right, _) in ledger.held_back.items() if right > group.priority
    )
    return group.avoid, _may_share(group, shape), None if everywhere else scope, kept, tuple(held_back)


def _held_back(group: Group, ledger: Ledger) -> Iterator[Bools]:
    """The nodes on which groups of its priority do not start, for each group that waits for room there (V27)."""
    return (nodes for right, nodes in ledger.held_back.values() if right > group.priority)


def _having(key: str, holds: Callable[[str], bool], table: NodeTable) -> Bools | None:
    """`having[n]`: node `n` has the label `key` with a value for which it holds; None if no node does."""
    column = table.label_column(key)
    codes = [code for code, value in enumerate(column.values) if holds(value)]
    return np.isin(column.codes, codes) if codes else None


def usable(shape: Shape, group: Group, ledger: Ledger) -> Ints:
    """`usable[n]`: how many pods of `shape` node `n` takes now, 0 where it is closed to the group. Read-only.

    Room that is kept from the group is no room for it (H8).
    """
    ledger.work.charge(10 + len(ledger.table) // 300)
    room = ledger.room(shape)
    for _, mask in closed(group, shape, ledger):
        room = np.where(mask, 0, room)
    return room if ledger.kept is None else ledger.kept.narrow(shape, room, group)


def _may_share(group: Group, shape: Shape) -> bool:
    """Plain pods go where kube-scheduler would put them; gangs only if they, or the pod by its request, say so."""
    for name, _ in shape.requests:  # a loop, for this is asked of every group several times
        if name == SHARED_RESOURCE:
            return True
    return all(gang.plain or gang.constraints.allow_shared for gang in group.gangs)


def _prefers_spreading(shape: Shape) -> bool:
    """Whether pods of `shape` prefer nodes away from some others."""
    return bool(shape.constraints.soft_spread or any(each.weight < 0 for each in shape.constraints.preferred))


def _label_sets(must: tuple[str, ...], ledger: Ledger, *, spread: bool) -> list[tuple[str, ...]]:
    """Sets of node labels that the nodes of a scope share, the closest first, `must` among each of them."""
    wanted = () if spread else ledger.policy.topology_keys
    known = [key for key in wanted if ledger.table.label_column(key).values]
    product = (PRODUCT_LABEL,) if ledger.table.label_column(PRODUCT_LABEL).values else ()
    preferred = [*((key, *product) for key in known), product, *((key,) for key in known), ()]
    sets = ((*must, *(key for key in keys if key not in must)) for keys in preferred)
    return list(dict.fromkeys(sets))


@dataclass(frozen=True, slots=True, eq=False)
class Domains:
    """Topology domains for the pods of a group, an entry each: `codes[n]` is the domain of node `n`, -1 without one.

    `fits` of the pods have a place there as far as sums say, `room` is the sum itself. `penalty` is the mean of their
    preferences about nodes, `anchors` the members that are there already. A `required` domain holds the anchors.
    """

    codes: Codes
    fits: Ints
    room: Ints
    penalty: np.ndarray[tuple[int], np.dtype[np.float64]]
    anchors: Ints
    required: bool

    @classmethod
    def of(
        cls, keys: tuple[str, ...], group: Group, counts: Mapping[Shape, int], ledger: Ledger, topology: str
    ) -> Domains:
        """The domains of `keys` for the pods counted by shape; `topology` is the label required of all pods."""
        codes = _codes(keys, ledger.table)
        inside = codes >= 0
        there, size = codes[inside], int(codes.max(initial=-1)) + 1
        fits, room, penalty = (np.zeros(size, dtype=np.int64) for _ in range(3))
        for number, (shape, count) in enumerate(counts.items()):
            if number >= PREFERRED_SHAPES:
                fits += count  # the attempt tells
                continue
            ledger.work.charge(30 + len(ledger.table) // 60)
            own = usable(shape, group, ledger)
            if not ledger.accelerated(shape) and keys != (topology,):
                fits += min(count, int(own.sum()))  # not kept in the scope, so any node will do
                continue
            per_domain = _sums(there, own[inside], size)
            fits += np.minimum(per_domain, count)
            room += per_domain
            penalty += _sums(there, (own * node_penalty(shape, ledger.table))[inside], size)
        nodes = codes[_anchors(group, ledger)]
        anchors = np.bincount(nodes[nodes >= 0], minlength=size)
        return cls(codes, fits, room, penalty / np.maximum(room, 1), anchors, bool(topology))

    def best(self, needed: int) -> list[int]:
        """Those with room for `needed` of the pods: most anchors first, least penalty, least room."""
        enough = np.flatnonzero(self.fits >= needed)
        if self.required and self.anchors.any():
            enough = enough[self.anchors[enough] > 0]
        order = np.lexsort((enough, self.room[enough], self.penalty[enough], -self.anchors[enough]))
        found: list[int] = enough[order].tolist()
        return found


def _sums(codes: Codes, values: Ints, size: int) -> Ints:
    """`sums[domain]` of `values` by their `codes`, exact below 2**53."""
    return np.bincount(codes, weights=values, minlength=size).astype(np.int64)


def _scope(keys: tuple[str, ...], codes: Codes, domain: int, topology: str, ledger: Ledger) -> Scope:
    nodes = codes == domain
    if not nodes.any():
        return Scope(nodes, nodes if topology else None, f"node(s) lack the label {' or '.join(keys)}")
    first = int(np.argmax(nodes))
    columns = {key: ledger.table.label_column(key) for key in keys}
    values = [f"{key}={column.values[column.codes[first]]}" for key, column in columns.items()]
    others = columns[topology].codes == columns[topology].codes[first] if topology else None
    return Scope(nodes, others, f"node(s) are outside {', '.join(values)}")


def _codes(keys: tuple[str, ...], table: NodeTable) -> Codes:
    """`codes[n]`: the domain of node `n` by the values of all `keys`, -1 where it lacks one of them."""
    codes = np.zeros(len(table), dtype=np.int64)
    lacking = np.zeros(len(table), dtype=np.bool_)
    for key in keys:
        column = table.label_column(key)
        codes = codes * (len(column.values) + 1) + column.codes
        lacking |= column.codes < 0
    _, dense = np.unique(codes[~lacking], return_inverse=True)
    domains = np.full(len(table), -1, dtype=np.int32)
    domains[~lacking] = dense.reshape(-1)
    return domains


def _anchors(group: Group, ledger: Ledger) -> Ints:
    """Node indices of the members that are bound or held already."""
    names = [name for gang in group.gangs for name in (*gang.nodes, *(placement.node for placement in gang.held))]
    return np.array([ledger.table.index[name] for name in names if name in ledger.table.index], dtype=np.int64)
