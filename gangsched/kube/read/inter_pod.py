"""Decode the inter-pod terms of a pod's spec into the model.

Invariant: a null selector selects nothing, and `{}` selects everything. Omitted fields get the
defaults of kube-scheduler 1.36. The result for a pod without terms is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gangsched.kube.read.wire import (
    Affinity,
    AffinityTerm,
    LabelSelector,
    PodSpec,
    SpreadConstraint,
    WirePodAffinity,
)
from gangsched.model.inter_pod import (
    ANY_IP,
    HostPort,
    InterPodConstraints,
    PodTerm,
    Requirement,
    Selector,
    Spread,
    WeightedPodTerm,
)

ALWAYS = "Always"
HONOR = "Honor"
DO_NOT_SCHEDULE = "DoNotSchedule"


def inter_pod_constraints(spec: PodSpec) -> InterPodConstraints | None:
    """Inter-pod terms of a pod; None if it has none."""
    affinity = spec.affinity or Affinity()
    near = affinity.pod_affinity or WirePodAffinity()
    away = affinity.pod_anti_affinity or WirePodAffinity()
    constraints = spec.topology_spread_constraints or ()

    inter_pod = InterPodConstraints(
        ports=tuple(dict.fromkeys(_host_ports(spec))),
        affinity=tuple(map(_term, near.required or ())),
        anti_affinity=tuple(map(_term, away.required or ())),
        spread=tuple(
            _spread(spread_constraint)
            for spread_constraint in constraints
            if spread_constraint.when_unsatisfiable == DO_NOT_SCHEDULE
        ),
        # One list with signed weights: a preferred anti-affinity is a preference with a negative
        # weight.
        preferred=(*_weighted(near, +1), *_weighted(away, -1)),
        soft_spread=tuple(
            _spread(spread_constraint)
            for spread_constraint in constraints
            if spread_constraint.when_unsatisfiable != DO_NOT_SCHEDULE
        ),
    )
    if inter_pod == InterPodConstraints():
        return None

    return inter_pod


def _host_ports(spec: PodSpec) -> Iterator[HostPort]:
    """Ports of what runs as long as the pod does: containers and sidecars, not plain init
    containers.
    """
    sidecars = (
        container for container in spec.init_containers or () if container.restart_policy == ALWAYS
    )
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.host_port > 0:
                yield HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY_IP)


def _weighted(affinity: WirePodAffinity, sign: int) -> Iterable[WeightedPodTerm]:
    return (
        WeightedPodTerm(sign * weighted_term.weight, _term(weighted_term.pod_affinity_term))
        for weighted_term in affinity.preferred or ()
    )


def _term(term: AffinityTerm) -> PodTerm:
    return PodTerm(
        topology_key=term.topology_key,
        selector=label_selector(term.label_selector),
        namespaces=tuple(sorted(set(term.namespaces or ()))),
        namespace_selector=label_selector(term.namespace_selector),
    )


def _spread(constraint: SpreadConstraint) -> Spread:
    return Spread(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        selector=label_selector(constraint.label_selector),
        # The API's default is nil, which counts as 1.
        min_domains=max(1, constraint.min_domains or 1),
        honor_affinity=(constraint.node_affinity_policy or HONOR) == HONOR,
        # The defaults differ: nodeAffinityPolicy is Honor, nodeTaintsPolicy is Ignore.
        honor_taints=constraint.node_taints_policy == HONOR,
        match_label_keys=constraint.match_label_keys or (),
    )


def label_selector(selector: LabelSelector | None) -> Selector:
    """Decode a label selector; None, which the API writes as null, selects nothing."""
    if selector is None:
        return None

    # Sorted, so that equal selectors are equal values.
    equals = (
        Requirement(key, "In", (value,))
        for key, value in sorted((selector.match_labels or {}).items())
    )
    return (*equals, *(selector.match_expressions or ()))
