"""Shapes: the scheduling-relevant part of a pod's spec, shared between identical pods.

Invariant: two pods with the same scheduling-relevant spec share one `Shape` object while either
exists, because masks are cached by the identity of the shape. The table has weak references, so it
grows only with the number of different pods in the cluster; names, nodes, images, environments and
volumes are not part of the key. Features that this version does not support are listed in
`Shape.unsupported` rather than ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias
from weakref import WeakValueDictionary

import msgspec

from gangsched.kube.read.extended import extended_names, extended_resources
from gangsched.kube.read.inter_pod import ALWAYS, inter_pod_constraints
from gangsched.kube.read.wire import (
    Conditions,
    Container,
    ContainerStatus,
    DeviceSource,
    NodeSelector,
    OutlineContainer,
    OutlineRequests,
    OutlineSpec,
    PodSpec,
    PodStatus,
    Statuses,
    Term,
    WireCondition,
    WireNodeAffinity,
)
from gangsched.model.bounds import MANY, STATED_BYTES, at_most, check_size
from gangsched.model.objects import NodeSelectorTerm, PreferredTerm, Shape
from gangsched.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    ResourceVector,
    parse_resources,
    pod_requests,
)

_encode = msgspec.msgpack.Encoder().encode
_statuses_decoder = msgspec.json.Decoder(Statuses)
_conditions_decoder = msgspec.json.Decoder(Conditions)
_requests_decoder = msgspec.json.Decoder(OutlineRequests)

NULL = b"null"
KNOWN_EVERYWHERE = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})

_Vectors: TypeAlias = list[ResourceVector]
_Stated: TypeAlias = Mapping[str, str | int | float]


class ShapeTable:
    """Interns shapes: equal specs get the same object. Not thread-safe; one table per process."""

    def __init__(self) -> None:
        self._shapes: WeakValueDictionary[bytes, Shape] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._shapes)

    def shape(self, spec: PodSpec, status: PodStatus) -> Shape:
        """Shape of a pod. Raises QuantityError for an invalid amount, and BoundError.

        `spec.node_name` is not part of it: a pod that has a node is bound, and is never filtered
        again.
        """
        resized = _resized(spec, status) if spec.node_name else None
        pod_level = _pod_level(spec, status)

        # Encoding and hashing bytes costs less than building a Shape for each pod of a gang of
        # thousands.
        key = _encode(
            (
                [(c.resources, c.ports) for c in spec.containers or ()],
                [(c.resources, c.ports, c.restart_policy) for c in spec.init_containers or ()],
                pod_level,
                spec.overhead,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                # The names of claims are the pod's own and no part of the shape; only how many are
                # not understood.
                [_unknown(source) for source in spec.resource_claims or ()].count(True),
                resized,
                extended_names(spec),
            )
        )
        # Without a call for each pod of a cluster.
        if len(key) > STATED_BYTES:
            check_size(len(key), "spec")

        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _shape(spec, resized, pod_level)

        return shape


def _shape(
    spec: PodSpec,
    resized: tuple[_Vectors, _Vectors] | None,
    pod_level: ResourceVector,
) -> Shape:
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    amounts = sum(
        len(container.resources.requests or ())
        for container in containers
        if container.resources is not None
    )
    at_most(amounts, MANY, "requests of all containers")
    affinity = (
        spec.affinity.node_affinity if spec.affinity is not None else None
    ) or WireNodeAffinity()
    required = affinity.required

    return Shape(
        requests=_requests(spec, resized, pod_level),
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        required=None if required is None else selector_terms(required),
        preferred=tuple(
            PreferredTerm(p.weight, _term(p.preference)) for p in affinity.preferred or ()
        ),
        tolerations=spec.tolerations or (),
        inter_pod=inter_pod_constraints(spec),
        unsupported=tuple(_unsupported(spec)),
        extended=extended_resources(spec),
    )


def selector_terms(selector: NodeSelector) -> tuple[NodeSelectorTerm, ...]:
    """The alternative terms of a node selector."""
    return tuple(_term(term) for term in selector.node_selector_terms or ())


def _term(term: Term) -> NodeSelectorTerm:
    return NodeSelectorTerm(labels=term.match_expressions, fields=term.match_fields)


def outline_requests(spec: OutlineSpec) -> OutlineRequests:
    """The part of a spec that says what the pod requests. Raises DecodeError."""
    fields = {
        "containers": spec.containers,
        "initContainers": spec.init_containers,
        "resources": spec.resources,
        "overhead": spec.overhead,
    }
    stated = {name: raw for name, raw in fields.items() if bytes(raw)}
    return _requests_decoder.decode(msgspec.json.encode(stated))


def stated_requests(spec: PodSpec | OutlineRequests) -> ResourceVector:
    """What a pod that is above a bound requests by its spec. Raises QuantityError.

    If it states more amounts than are read, those count that every kubelet knows: any number of
    names could not be summed up in a bounded time, and kubelets ignore names that no node offers.
    """
    containers = spec.containers or ()
    inits = spec.init_containers or ()
    amounts = 0
    for container in (*containers, *inits):
        amounts += len(_stated(container))

    amounts += len(spec.overhead or ())
    only = None if amounts <= MANY else KNOWN_EVERYWHERE

    return pod_requests(
        containers=[_of_names(_stated(container), only) for container in containers],
        init_containers=[
            (_of_names(_stated(container), only), container.restart_policy == ALWAYS)
            for container in inits
        ],
        pod_level=_of_names(_stated(spec), only),
        overhead=_of_names(spec.overhead or {}, only),
    )


def _stated(owner: PodSpec | OutlineRequests | Container | OutlineContainer) -> _Stated:
    if owner.resources is None:
        return {}

    return owner.resources.requests or {}


def _of_names(stated: _Stated, only: frozenset[str] | None) -> ResourceVector:
    """These amounts, or those of the names."""
    if only is None:
        return parse_resources(stated)

    # The map of one container may be any size.
    return parse_resources({name: stated[name] for name in only if name in stated})


def _requests(
    spec: PodSpec,
    resized: tuple[_Vectors, _Vectors] | None,
    pod_level: ResourceVector,
) -> ResourceVector:
    containers, inits = resized or (_vectors(spec.containers), _vectors(spec.init_containers))
    always = [container.restart_policy == ALWAYS for container in spec.init_containers or ()]
    return pod_requests(
        containers=containers,
        init_containers=list(zip(inits, always, strict=True)),
        pod_level=pod_level,
        overhead=parse_resources(spec.overhead),
    )


def _vectors(containers: Iterable[Container] | None) -> _Vectors:
    return [
        parse_resources(c.resources.requests if c.resources is not None else None)
        for c in containers or ()
    ]


def _pod_level(spec: PodSpec, status: PodStatus) -> ResourceVector:
    """Requests of the pod as a whole; while a bound one is resized in place, as for its containers
    (KEP-5419).
    """
    wanted = parse_resources(spec.resources.requests) if spec.resources is not None else ()
    if not wanted or not spec.node_name or status.resources is None:
        return wanted

    actual = _largest(
        parse_resources(status.resources.requests),
        parse_resources(status.allocated_resources),
    )
    counted = actual if _infeasible(status) else _largest(wanted, actual)
    stated = {name for name, _ in wanted}

    return tuple((name, amount) for name, amount in counted if name in stated)


def _resized(spec: PodSpec, status: PodStatus) -> tuple[_Vectors, _Vectors] | None:
    """The containers' requests while they are resized in place; None when they have what the spec
    says.

    The largest of wanted, actual and allocated counts; what can never be given (`Infeasible`) does
    not count as wanted (kube-scheduler NodeResourcesFit, KEP-1287). Only sidecars among the init
    containers can be resized.
    """
    # A pod has a node before its kubelet writes the first status.
    if not (status.container_statuses or status.init_container_statuses):
        return None

    if b'"resources"' not in bytes(status.container_statuses) + bytes(
        status.init_container_statuses
    ):
        return None

    has = {}
    for raw in _raw_statuses(status):
        for s in _statuses_decoder.decode(raw):
            if s.resources is not None:
                has[s.name] = s

    sidecars = [c for c in spec.init_containers or () if c.restart_policy == ALWAYS]
    # Kubelets report `resources` for every running pod, mostly equal to the spec.
    if all(_has_what_it_wants(c, has.get(c.name)) for c in (*(spec.containers or ()), *sidecars)):
        return None

    infeasible = _infeasible(status)

    def counted(container: Container, wanted: ResourceVector) -> ResourceVector:
        own = has.get(container.name)
        if own is None or own.resources is None:
            return wanted

        actual = _largest(
            parse_resources(own.resources.requests),
            parse_resources(own.allocated_resources),
        )
        # The scheduler must leave room for a resize that is under way in either direction.
        return actual if infeasible else _largest(wanted, actual)

    containers = list(map(counted, spec.containers or (), _vectors(spec.containers)))
    inits = [
        counted(container, wanted) if container.restart_policy == ALWAYS else wanted
        for container, wanted in zip(
            spec.init_containers or (),
            _vectors(spec.init_containers),
            strict=True,
        )
    ]
    same = containers == _vectors(spec.containers) and inits == _vectors(spec.init_containers)

    return None if same else (containers, inits)


def _has_what_it_wants(container: Container, own: ContainerStatus | None) -> bool:
    """The quick and usual answer, without parsing an amount; false may still turn out to
    be equal.
    """
    if own is None or own.resources is None:
        return True

    wanted = (container.resources.requests if container.resources is not None else None) or {}
    return (own.resources.requests or {}) == wanted and (
        own.allocated_resources or wanted
    ) == wanted


def _raw_statuses(status: PodStatus) -> Iterable[msgspec.Raw]:
    return (
        raw
        for raw in (status.container_statuses, status.init_container_statuses)
        if bytes(raw) not in {b"", NULL}
    )


def _largest(a: ResourceVector, b: ResourceVector) -> ResourceVector:
    larger = dict(a)
    for name, amount in b:
        larger[name] = max(amount, larger.get(name, 0))

    return tuple(sorted(larger.items()))


def _infeasible(status: PodStatus) -> bool:
    """Whether the node can never give what is wanted; kube-scheduler looks at the first such
    condition's reason.
    """
    pending = (
        condition.reason for condition in conditions(status) if condition.type == "PodResizePending"
    )
    return next(pending, "") == "Infeasible"


def conditions(status: PodStatus) -> list[WireCondition]:
    """The pod's conditions, decoded when this is called."""
    raw = bytes(status.conditions)
    if raw in {b"", NULL}:
        return []

    return _conditions_decoder.decode(raw)


def _unsupported(spec: PodSpec) -> Iterable[str]:
    """What this version does not support, as the rest of a sentence about the pod."""
    if any(_unknown(source) for source in spec.resource_claims or ()):
        yield "uses resource claims of an unknown kind, which gangsched does not support yet"


def _unknown(source: DeviceSource) -> bool:
    """A resource claim that is named neither directly nor by a template."""
    return source.resource_claim_name is None and source.resource_claim_template_name is None
