"""Scopes: on which part of the cluster a gang is tried, and in which order (the GPU policy).

Law: what a gang requires (`Wishes`) holds for every scope it is tried in; what is only preferred is tried first and
given up as soon as it would leave a member out. The strictest wish of any gang holds for its whole group. A group that
asks for no accelerator and requires nothing is tried once, on all nodes.

Preferred is one GPU product and then the closest topology domain: the domain that already has members, then the one
whose nodes suit the pods' own soft preferences, then the one with the least room that is enough, so that large domains
stay whole. Only pods that ask for accelerators are kept in a preferred scope, and no domain is preferred for members
that say themselves that they would rather be apart (soft spread, preferred anti-affinity).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.node_affinity import label_column
from gangsched.core.permit import missing
from gangsched.core.reserve import Ledger, Scope
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import NOT_SHARED, PRODUCT_LABEL, SHARED_RESOURCE, SHARED_SUFFIX, SHARING_LABEL
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, Codes, Ints, NodeTable

AVOIDED = "node(s) rejected a member lately"
SHARED = "node(s) share their GPUs between pods, which a gang must ask for"

PREFERRED_TRIES = 2
"""Domains of one kind that are tried for a preference."""
REQUIRED_TRIES = 4
"""Domains that are tried for a requirement."""

EVERYWHERE = Scope(last=True)


def scopes(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Iterator[Scope]:
    """Where to try the pending members of `gangs`, best first and one after the other, until one attempt counts."""
    counts: dict[Shape, int] = {}
    for pod in (pod for gang in gangs for pod in gang.pending):
        counts[pod.shape] = counts.get(pod.shape, 0) + 1
    topology, must = _required(group)
    if not _on_one_node(group, counts, ledger):
        for keys in _kinds(must, ledger, apart=any(map(_apart, counts))):
            if keys != must:
                wanted = _domains(keys, group, counts, sum(counts.values()), ledger, topology)
                yield from (replace(scope, whole=True) for scope in wanted[:PREFERRED_TRIES])
    if not must:
        yield EVERYWHERE
        return
    enough = _domains(must, group, counts, sum(missing(gang, 0) for gang in gangs), ledger, topology)
    tried = enough[:REQUIRED_TRIES] or _domains(must, group, counts, 0, ledger, topology)[-1:]
    tried = tried or [_scope(must, _codes(must, ledger.table), 0, topology, ledger)]
    yield from tried[:-1]
    yield replace(tried[-1], last=True)


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


def _required(group: Group) -> tuple[str, tuple[str, ...]]:
    """The node label whose domain must hold the group ("" for none), and all labels that its nodes must share."""
    topology = min((gang.constraints.topology for gang in group.gangs if gang.constraints.topology), default="")
    product = PRODUCT_LABEL if any(gang.constraints.same_product for gang in group.gangs) else ""
    return topology, tuple(dict.fromkeys(key for key in (topology, product) if key))


def closed(group: Group, shape: Shape, ledger: Ledger) -> Iterator[tuple[str, Bools]]:
    """Nodes that are closed to pods of `shape` for a reason of the group, with the reason's text."""
    if group.avoid:
        mask = np.zeros(len(ledger.table), dtype=np.bool_)
        mask[[ledger.table.index[name] for name in group.avoid if name in ledger.table.index]] = True
        yield AVOIDED, mask
    accelerated = ledger.accelerated(shape)
    if accelerated and not _may_share(group, shape):
        stated = _having(SHARING_LABEL, lambda value: value not in NOT_SHARED, ledger.table)
        named = _having(PRODUCT_LABEL, lambda value: value.endswith(SHARED_SUFFIX), ledger.table)
        yield from ((SHARED, mask) for mask in (stated, named) if mask is not None)
    inside = ledger.scope.accelerated if accelerated else ledger.scope.others
    if inside is not None:
        yield ledger.scope.text, ~inside


def _having(key: str, holds: Callable[[str], bool], table: NodeTable) -> Bools | None:
    """`having[n]`: node `n` has the label `key` with a value for which it holds; None if no node does."""
    column = label_column(key, table)
    codes = [code for code, value in enumerate(column.values) if holds(value)]
    return np.isin(column.codes, codes) if codes else None


def usable(shape: Shape, group: Group, ledger: Ledger) -> Ints:
    """`usable[n]`: how many pods of `shape` node `n` takes now, 0 where it is closed to the group. Read-only."""
    room = ledger.room(shape)
    for _, mask in closed(group, shape, ledger):
        room = np.where(mask, 0, room)
    return room


def _may_share(group: Group, shape: Shape) -> bool:
    """Plain pods go where kube-scheduler would put them; gangs only if they, or the pod by its request, say so."""
    if any(name == SHARED_RESOURCE for name, _ in shape.requests):
        return True
    return all(gang.plain or gang.constraints.allow_shared for gang in group.gangs)


def _apart(shape: Shape) -> bool:
    """Whether pods of `shape` would rather keep away from some others."""
    inter_pod = shape.inter_pod
    return inter_pod is not None and bool(inter_pod.soft_spread or any(each.weight < 0 for each in inter_pod.preferred))


def _kinds(must: tuple[str, ...], ledger: Ledger, *, apart: bool) -> list[tuple[str, ...]]:
    """Sets of node labels that the nodes of a scope share, the closest first, `must` among each of them."""
    wanted = () if apart else ledger.policy.topology_keys
    known = [key for key in wanted if label_column(key, ledger.table).values]
    product = (PRODUCT_LABEL,) if label_column(PRODUCT_LABEL, ledger.table).values else ()
    wished = [*((key, *product) for key in known), product, *((key,) for key in known), ()]
    kinds = ((*must, *(key for key in keys if key not in must)) for keys in wished)
    return list(dict.fromkeys(kinds))


def _domains(
    keys: tuple[str, ...], group: Group, counts: Mapping[Shape, int], needed: int, ledger: Ledger, topology: str
) -> list[Scope]:
    """Domains of `keys` with room for `needed` of the pods counted by shape, as far as sums say; best first."""
    codes = _codes(keys, ledger.table)
    size = int(codes.max(initial=-1)) + 1
    if not size:
        return []
    fits, room, penalty = np.zeros(size), np.zeros(size), np.zeros(size)
    inside = codes >= 0
    for shape, count in counts.items():
        own = usable(shape, group, ledger)
        if not ledger.accelerated(shape) and keys != (topology,):
            fits += min(count, int(own.sum()))  # not kept in the scope, so any node will do
            continue
        own = own[inside]
        per_domain = np.bincount(codes[inside], weights=own, minlength=size)
        fits += np.minimum(per_domain, count)
        room += per_domain
        penalty += np.bincount(
            codes[inside], weights=own * static_fit(shape, ledger.table).penalty[inside], minlength=size
        )
    there = _anchors(group, ledger)
    anchors = np.bincount(codes[there][codes[there] >= 0], minlength=size)
    enough = np.flatnonzero(fits >= needed)
    if topology and anchors.any():
        enough = enough[anchors[enough] > 0]  # a required domain is where the others are already
    mean_penalty = penalty / np.maximum(room, 1)
    order = np.lexsort((enough, room[enough], mean_penalty[enough], -anchors[enough]))
    return [_scope(keys, codes, domain, topology, ledger) for domain in enough[order].tolist()]


def _scope(keys: tuple[str, ...], codes: Codes, domain: int, topology: str, ledger: Ledger) -> Scope:
    nodes = codes == domain
    if not nodes.any():
        return Scope(nodes, nodes if topology else None, f"node(s) lack the label {' or '.join(keys)}")
    first = int(np.argmax(nodes))
    columns = {key: label_column(key, ledger.table) for key in keys}
    values = [f"{key}={column.values[column.codes[first]]}" for key, column in columns.items()]
    others = columns[topology].codes == columns[topology].codes[first] if topology else None
    return Scope(nodes, others, f"node(s) are outside {', '.join(values)}")


def _codes(keys: tuple[str, ...], table: NodeTable) -> Codes:
    """`codes[n]`: the domain of node `n` by the values of all `keys`, -1 where it lacks one of them."""
    codes = np.zeros(len(table), dtype=np.int64)
    lacking = np.zeros(len(table), dtype=np.bool_)
    for key in keys:
        column = label_column(key, table)
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
