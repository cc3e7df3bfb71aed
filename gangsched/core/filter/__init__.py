"""Filter: which nodes may take a pod, and why the other nodes may not.

Invariant: `FILTERS` are kube-scheduler's plugins in its order. The first filter that refuses a node
decides, so refusals are counted as in kube-scheduler. The result of static filters is computed once
per shape and node table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gangsched.core.filter import (
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
)
from gangsched.core.filter.plugin import Filter, Occupancy, StatefulFilter, StaticFilter
from gangsched.core.filter.volumes import (
    dynamic_resources,
    node_volume_limits,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from gangsched.model.gang import Refusal
from gangsched.model.objects import Pod, Shape
from gangsched.model.snapshot import Bools, Ints, NodeTable, RefusedNodes, StaticFit

FILTERS: tuple[Filter, ...] = (
    node_affinity.NamedNodes(),  # NodeAffinity's PreFilter
    node_unschedulable.NodeUnschedulable(),
    node_name.NodeName(),
    taint_toleration.TaintToleration(),
    node_affinity.NodeAffinity(),
    node_ports.NodePorts(),
    node_resources_fit.NodeResourcesFit(),
    volume_restrictions.VolumeRestrictions(),
    node_volume_limits.NodeVolumeLimits(),
    volume_binding.VolumeBinding(),
    volume_zone.VolumeZone(),
    pod_topology_spread.PodTopologySpread(),
    inter_pod_affinity.PodAffinity(),
    inter_pod_affinity.PodAntiAffinity(),
    dynamic_resources.DynamicResources(),
)
# Derived from FILTERS, so that a new filter is registered in one place.
STATIC = tuple(each for each in FILTERS if isinstance(each, StaticFilter))
STATEFUL = tuple(each for each in FILTERS if isinstance(each, StatefulFilter))
TERMS = tuple(
    plugin
    for plugin in STATEFUL
    if isinstance(plugin, inter_pod_affinity.PodAffinity | inter_pod_affinity.PodAntiAffinity)
)
# Most filters inherit the default: asking only those that override it keeps a plan of plain pods
# cheap.
FAULTS = tuple(plugin for plugin in STATEFUL if type(plugin).fault is not StatefulFilter.fault)
PRE_FILTERS = tuple(each for each in FILTERS if type(each).pre_filter is not Filter.pre_filter)


def static_fit(shape: Shape, table: NodeTable) -> StaticFit:
    """Result of the static filters for every node; a shape with unsupported features
    fits nowhere.
    """
    fit = table.static_fits.get(shape)
    if fit is None:
        open_nodes = np.ones(len(table), dtype=np.bool_)
        refused = []

        for plugin in STATIC:
            allowed = plugin.allowed(shape, table)
            # Only nodes that no earlier filter refused: kube-scheduler counts a node under its
            # first failing plugin.
            refused.append(RefusedNodes(plugin.reason, open_nodes & ~allowed))
            open_nodes &= allowed

        refusals = tuple(refused_nodes for refused_nodes in refused if refused_nodes.nodes.any())
        # Kept with the node table and weakly by shape: it goes when a node changes or the last pod
        # of the shape is gone.
        fit = table.static_fits[shape] = StaticFit(open_nodes & (not shape.unsupported), refusals)

    return fit


def pre_filter(pod: Pod, occupancy: Occupancy) -> Refusal | None:
    """The refusal of the first filter that rules out all nodes for the pod; None if no
    filter does.
    """
    for plugin in PRE_FILTERS:
        refusal = plugin.pre_filter(pod, occupancy)
        if refusal is not None:
            return refusal

    return None


def cause(pod: Pod, occupancy: Occupancy) -> Refusal | None:
    """The refusal of `pre_filter`; without one, an error of the pod itself that a filter found
    while it evaluated nodes. None if there is neither.
    """
    # A refusal by PreFilter wins, as in kube-scheduler, which then evaluates no node at all.
    refusal = pre_filter(pod, occupancy)
    faults = (plugin.fault(pod, occupancy) for plugin in FAULTS)

    if refusal is not None:
        return refusal

    return next((fault for fault in faults if fault is not None), None)


def applying(pod: Pod, occupancy: Occupancy) -> Sequence[StatefulFilter]:
    """The stateful filters that may reject a node that has enough room for the pod, in order.

    Until a pod has terms about others, equal shapes have the same ones (`StatefulFilter.applies`).
    """
    if occupancy.pods.has_terms:
        return [plugin for plugin in STATEFUL if plugin.applies(pod, occupancy)]

    alike = (pod.shape, bool(pod.claims))
    known = occupancy.applying.get(alike)
    if known is None:
        known = [plugin for plugin in STATEFUL if plugin.applies(pod, occupancy)]
        occupancy.applying[alike] = known

    return known


def restricts(pod: Pod, occupancy: Occupancy) -> bool:
    """Whether a stateful filter may reject a node that has enough room for the pod."""
    return bool(applying(pod, occupancy))


def restricts_by_terms(pod: Pod, occupancy: Occupancy) -> bool:
    """Whether inter-pod terms are the only stateful filters that may reject a node with enough
    room.
    """
    return all(plugin in TERMS for plugin in applying(pod, occupancy))


def serial(pod: Pod, occupancy: Occupancy) -> bool:
    """Whether placing one such pod may change the feasible nodes of the next one other than by
    using room.
    """
    return any(plugin.serial(pod, occupancy) for plugin in applying(pod, occupancy))


def narrow(
    pod: Pod,
    room: Ints,
    occupancy: Occupancy,
) -> Ints:
    """`room`, reduced by the stateful filters; it must already be 0 on nodes where the pod does not
    fit.
    """
    plugins = applying(pod, occupancy)
    # Charged before the arrays are made; the unit is that of `core.work` (25,000 are one plan).
    occupancy.work.charge(4 + len(plugins) * (10 + room.size // 200))

    if plugins and pre_filter(pod, occupancy) is not None:
        return np.zeros_like(room)

    for plugin in plugins:
        # In the order of FILTERS: a later filter may read what an earlier one left.
        for refused in plugin.refusals(pod, occupancy):
            room = np.where(refused.nodes, 0, room)

        room = plugin.narrowed(pod, room, occupancy)

    return room


def refusals(
    pod: Pod,
    occupancy: Occupancy,
    open_nodes: Bools,
) -> Iterator[RefusedNodes]:
    """Yield each reason of the stateful filters, with the nodes among `open_nodes` that are refused
    for it.
    """
    occupancy.work.charge(60 + len(STATEFUL) * open_nodes.size // 500)
    for plugin in STATEFUL:
        # Unlike `narrow`, this runs only for a message, so every filter is evaluated on all open
        # nodes.
        by_reason = _told(plugin.refusals(pod, occupancy), several=plugin.several_reasons)
        left = open_nodes

        for reason, nodes in by_reason:
            yield RefusedNodes(reason, nodes & open_nodes)
            left = left & ~nodes

        open_nodes = left


def may_stay(
    pod: Pod,
    node: int,
    occupancy: Occupancy,
) -> bool:
    """Whether lasting filters allow a pod that runs on `node` to stay there. The pod itself is not
    counted.
    """
    # Affinity and spread are decided once (IgnoredDuringExecution); asked again is only what two
    # pods cannot have at the same time.
    lasting = (plugin for plugin in applying(pod, occupancy) if plugin.lasting)
    return all(plugin.stays(pod, node, occupancy) for plugin in lasting)


def _told(
    refused: Iterable[RefusedNodes],
    *,
    several: bool,
) -> Iterator[RefusedNodes]:
    """Leave a node to the first reason that a filter gives, unless `several` count."""
    before: Bools | None = None
    for reason, nodes in refused:
        if before is None:
            yield RefusedNodes(reason, nodes)
            before = nodes
            continue

        yield RefusedNodes(reason, nodes if several else nodes & ~before)
        before = before | nodes
