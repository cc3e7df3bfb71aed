"""Decode objects of the API into values of the model, one at a time.

Invariant: an object becomes a value or a `DecodeFault` that names it and the problem; missing
values are not guessed, and no other exception is raised. A pod that has ended and belongs to no
gang is dropped (None), because it uses no room. `api` and `core` interpret the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache

import msgspec
from msgspec import structs

from gangsched.api.keys import (
    GANG_LABELS,
    GROVE_GANG,
    PERMITTED,
    RUN_TIME_KEYS,
    GangMetadata,
    is_timed_out,
    member_index,
    run_time_metadata,
)
from gangsched.api.permits import parse_permit
from gangsched.api.pod_metadata import pod_gang_metadata
from gangsched.kube.http.faults import Fault
from gangsched.kube.read.deaths import death_of, restarts_of
from gangsched.kube.read.inter_pod import label_selector
from gangsched.kube.read.owner_asks import OwnerAsks
from gangsched.kube.read.scheduler_names import SchedulerNames
from gangsched.kube.read.shapes import ShapeTable, conditions, outline_requests, stated_requests
from gangsched.kube.read.wire import (
    Identified,
    ObjectIdentity,
    OutlineSpec,
    Owner,
    PodOutline,
    PodStatus,
    Wire,
    WireDisruptionBudget,
    WireNamespace,
    WireNode,
    WirePod,
    WireService,
)
from gangsched.model.bounds import MANY, BoundError, at_most, stated_size
from gangsched.model.disruption import (
    DISRUPTION_TARGET,
    PREEMPTED_BY_SCHEDULER,
    VICTIM_MESSAGE,
    PodDisruptionBudget,
)
from gangsched.model.objects import (
    NOTHING,
    TERMINAL,
    ClaimEntry,
    ClaimUse,
    Namespace,
    Node,
    Phase,
    Pod,
    ScheduledCondition,
    Service,
    Shape,
    stand_in,
)
from gangsched.model.owners import OwnerGangs, controller_kind
from gangsched.model.resources import PODS, parse_resources
from kubernetes_cel.amounts import QuantityError

MIRROR = "kubernetes.io/config.mirror"
NEVER = "Never"
INT32_LIMIT = 2**31
GRACE_S = 30
"""The grace period of pods that state none; API servers always write one."""
TARGET_TYPE = DISRUPTION_TARGET.encode()
NO_CONTROLLER = Owner()
FAILED = Phase.FAILED.value
REJECTED = "Pod was rejected: "
KUBELET_REJECTIONS = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity")
TEXT_KEPT = 1_100
"""Characters; more than we ever write, so that a longer text is seen to be another's."""
NAME_KEPT = 512
"""Characters of a name that API servers take in any length: those of objects have at most 253, so
one that is cut is that of no object, as before.
"""
_PHASES: Mapping[str, Phase] = {phase.value: phase for phase in Phase} | {"": Phase.PENDING}


class DecodeFault(Fault):
    """An object that cannot be decoded; the message names it."""


def decode_pod(
    wire: WirePod,
    shapes: ShapeTable,
    names: SchedulerNames | None = None,
    unread: frozenset[str] = frozenset(),
    owner_asks: OwnerAsks | None = None,
) -> Pod | None:
    """The pod, or None for one that ended and has no gang. Raises DecodeFault.

    `condition` is set only for unbound pods with one of the scheduler `names`; without `names`, for
    all unbound pods. A waiting pod's scheduler name is compared with `names`, so that misspelt ones
    are reported. Gang keys in `unread` are left out. `owner_asks` knows the namespaces whose pods
    may be in gangs of their owners.
    """
    meta = wire.metadata
    spec = wire.spec
    status = wire.status
    labels = meta.labels or NOTHING
    annotations = meta.annotations or NOTHING
    owner_gangs = owner_asks.of(meta.namespace) if owner_asks is not None else OwnerGangs.ASKED
    gang_metadata = pod_gang_metadata(labels, annotations, unread, owner_gangs)

    native_group = spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else ""
    # Before anything is parsed: clusters keep tens of thousands of ended pods.
    has_gang = bool(gang_metadata or native_group) or (
        owner_gangs is OwnerGangs.ALL and bool(meta.owner_references)
    )
    if not has_gang and status.phase in TERMINAL:
        return None

    # The condition is compared with what we would write; of all other pods it is not needed.
    waits_for_us = not spec.node_name and (names is None or spec.scheduler_name in names.ours)
    if (
        not spec.node_name
        and not waits_for_us
        and names is not None
        and status.phase not in TERMINAL
    ):
        names.compare(spec.scheduler_name, f"{meta.namespace}/{meta.name}")

    try:
        shape = shapes.shape(spec, status)
        condition = _scheduled_condition(status) if waits_for_us else None
        is_target = bool(spec.node_name) and _is_disruption_target(status)
        uses = _uses(wire)
        death = None
        restarts = 0

        if has_gang:
            restarts = restarts_of(status)
            # A pod that was asked to go has not been killed by its node.
            if meta.deletion_timestamp is None:
                death = death_of(status, seconds)
    except (QuantityError, BoundError, msgspec.DecodeError) as error:
        raise DecodeFault(
            f"Pod {meta.namespace}/{meta.name} cannot be understood: {error}"
        ) from error

    index = member_index(labels, annotations, meta.name) if has_gang else -1
    pod = _pod(wire, shape, condition, gang_metadata, native_group, is_target, uses, index)
    if death is None and not restarts:
        return pod

    return structs.replace(pod, death=death, restarts=restarts)


def _pod(
    wire: WirePod,
    shape: Shape,
    condition: ScheduledCondition | None,
    gang_metadata: GangMetadata,
    native_group: str,
    is_target: bool,
    uses: tuple[ClaimUse, ...],
    index: int,
) -> Pod:
    meta = wire.metadata
    spec = wire.spec
    status = wire.status
    labels = meta.labels or NOTHING
    annotations = meta.annotations or NOTHING
    run_time: GangMetadata = ()

    if (
        not (RUN_TIME_KEYS.isdisjoint(annotations) and RUN_TIME_KEYS.isdisjoint(labels))
        or spec.active_deadline_seconds
    ):
        run_time = run_time_metadata(labels, annotations, spec.active_deadline_seconds)

    grace_s = spec.termination_grace_period_seconds
    priority = spec.priority
    controller = NO_CONTROLLER
    kind = ""
    if meta.owner_references:
        controller = controller_of(meta.owner_references)
        kind = controller_kind(controller.api_version, controller.kind)

    return Pod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        creation_s=seconds(meta.creation_timestamp) if meta.creation_timestamp else 0,
        shape=shape,
        scheduler_name=spec.scheduler_name[:NAME_KEPT],
        node_name=spec.node_name,
        # The nomination of a bound pod no longer means anything, and older API servers keep it.
        nominated_node=status.nominated_node_name if not spec.node_name else "",
        # A phase of a future version: the pod still takes room.
        phase=_PHASES.get(status.phase, Phase.UNKNOWN),
        deleting=meta.deletion_timestamp is not None,
        gated=bool(spec.scheduling_gates),
        # As the API has it; sums and differences of columns would overflow.
        priority=priority if -INT32_LIMIT <= priority < INT32_LIMIT else _int32(priority),
        gang_metadata=gang_metadata,
        timed_out=is_timed_out(annotations),
        native_group=native_group,
        owner=controller.name,
        controller_kind=kind,
        controller_uid=controller.uid,
        labels=labels,
        claims=uses,
        # Bounded, since any client with pods/status may write megabytes.
        status_reason=status.reason[:TEXT_KEPT],
        rejection=_rejection(status),
        condition=condition,
        permitted=(
            parse_permit(annotations[PERMITTED], meta.uid) if PERMITTED in annotations else None
        ),
        run_time_metadata=run_time,
        start_s=seconds(status.start_time) if status.start_time else 0,
        deletion_s=seconds(meta.deletion_timestamp) if meta.deletion_timestamp else 0,
        grace_s=GRACE_S if grace_s is None else grace_s,
        mirror=MIRROR in annotations,
        never_preempts=spec.preemption_policy == NEVER,
        disruption_target=is_target,
        index=index,
    )


def _int32(number: int) -> int:
    return max(-INT32_LIMIT, min(number, INT32_LIMIT - 1))


def instead_of_pod(
    wire: WirePod | PodOutline,
    old: Pod | None,
    why: str,
    unread: frozenset[str] = frozenset(),
) -> Pod | None:
    """Replacement for a pod that cannot be decoded: its last version, a pod that uses what it
    requests, or a pending pod that is refused with the reason (semantics I8).
    """
    meta = wire.metadata
    spec = wire.spec
    # A pod keeps its node for as long as it exists.
    if wire.status.phase in TERMINAL or (
        old is not None and old.node_name and spec.node_name in {"", old.node_name}
    ):
        return old
    if spec.node_name:
        requests = None
        # Else whoever has a pod with too many labels on a node would keep everybody else off it.
        with suppress(QuantityError, msgspec.DecodeError):
            stated = outline_requests(spec) if isinstance(spec, OutlineSpec) else spec
            requests = stated_requests(stated)

        return stand_in(meta.uid, meta.namespace, meta.name, spec.node_name, requests)

    labels = meta.labels or NOTHING
    native_group = spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else ""
    return Pod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        creation_s=seconds(meta.creation_timestamp) if meta.creation_timestamp else 0,
        shape=_unread_shape(why),
        scheduler_name=spec.scheduler_name,
        phase=_PHASES.get(wire.status.phase, Phase.UNKNOWN),
        deleting=meta.deletion_timestamp is not None,
        gang_metadata=pod_gang_metadata(labels, meta.annotations or NOTHING, unread),
        native_group=native_group,
        # Only the labels that say what it belongs to: there may be too many others.
        labels={
            key: value for key, value in labels.items() if key in GANG_LABELS or key == GROVE_GANG
        },
    )


@lru_cache(maxsize=256)
def _unread_shape(why: str) -> Shape:
    """The shape of pods that cannot be read: what they request is unknown, so they may start
    nowhere.
    """
    return Shape(requests=((PODS, 1),), unsupported=(f"cannot be read: {why}",))


def instead_of_budget(
    identity: WireDisruptionBudget | Identified,
    _: PodDisruptionBudget | None,
    why: str,
) -> PodDisruptionBudget:
    """Replacement for a budget that cannot be decoded: one that allows no disruption of any pod of
    its namespace.
    """
    # Whom it protects is unknown, and an eviction could violate it.
    del why
    return PodDisruptionBudget(
        namespace=identity.metadata.namespace,
        name=identity.metadata.name,
        selector=(),
        allowed=0,
    )


def decode_node(wire: WireNode) -> Node:
    """Decode a node; a node without allocatable has no room."""
    meta = wire.metadata
    spec = wire.spec

    try:
        allocatable = parse_resources(wire.status.allocatable)
    except QuantityError as error:
        raise DecodeFault(f"Node {meta.name} cannot be understood: allocatable {error}") from error

    return Node(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels or NOTHING,
        taints=spec.taints or (),
        unschedulable=spec.unschedulable,
        allocatable=allocatable,
        creation_s=seconds(meta.creation_timestamp) if meta.creation_timestamp else 0,
    )


def decode_namespace(wire: WireNamespace) -> Namespace:
    """Decode the labels of a namespace."""
    return Namespace(name=wire.metadata.name, labels=wire.metadata.labels or NOTHING)


def decode_service(wire: WireService) -> Service | None:
    """Decode a Service; None for a Service without a selector, which selects no pods."""
    meta = wire.metadata
    selector = wire.spec.selector
    check_size(wire.spec, "Service", meta)

    if selector:
        return Service(meta.namespace, meta.name, frozenset(selector.items()))

    return None


def decode_disruption_budget(wire: WireDisruptionBudget) -> PodDisruptionBudget:
    """Decode a PodDisruptionBudget. It allows no disruption while its status is of an older spec,
    as in the API server.

    See pkg/registry/core/pod/storage/eviction.go, checkAndDecrement, 1.36.
    """
    meta = wire.metadata
    status = wire.status
    check_size(wire.spec, "PodDisruptionBudget", meta)

    return PodDisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        selector=label_selector(wire.spec.selector),
        # The controller has not seen the new spec yet.
        allowed=(
            max(0, status.disruptions_allowed)
            if status.observed_generation >= meta.generation
            else 0
        ),
    )


def check_size(spec: Wire, kind: str, meta: ObjectIdentity) -> None:
    """Raise DecodeFault for a spec that is larger than gangsched reads."""
    try:
        stated_size(spec, "spec")
    except BoundError as error:
        raise DecodeFault(
            f"{kind} {meta.namespace}/{meta.name} cannot be understood: {error}"
        ) from error


def node_decoder(warn: Callable[[str], None]) -> Callable[[WireNode], Node]:
    """A `decode_node` that logs one warning per node without allocatable resources."""
    empty: set[str] = set()

    def decode(wire: WireNode) -> Node:
        node = decode_node(wire)
        if node.allocatable:
            empty.discard(node.name)
        elif node.name not in empty:
            empty.add(node.name)
            warn(
                f"Node {node.name} has no allocatable resources in its status; nothing can be"
                " placed on it."
            )

        return node

    return decode


def _uses(wire: WirePod) -> tuple[ClaimUse, ...]:
    """The pod's claims, and the one that a scheduler has created for its extended resources."""
    claim_status = wire.status.extended_resource_claim_status
    if not (wire.spec.volumes or wire.spec.resource_claims or claim_status):
        return ()

    uses = _claims(wire)
    # Nearly all pods have a volume with their token, and nothing else that could be a claim.
    if wire.spec.resource_claims:
        uses += _devices(wire)

    if claim_status is not None:
        name = claim_status.resource_claim_name
        uses += (ClaimUse(name, ephemeral=True, device=True, extended=True),)

    at_most(len(uses), MANY, "spec.volumes and spec.resourceClaims")
    return uses


def _claims(wire: WirePod) -> tuple[ClaimUse, ...]:
    """The claims of the pod's volumes; an ephemeral volume's is named after pod and volume."""
    return tuple(
        (
            ClaimUse(f"{wire.metadata.name}-{volume.name}", ephemeral=True)
            if volume.persistent_volume_claim is None
            else ClaimUse(volume.persistent_volume_claim.claim_name[:NAME_KEPT])
        )
        for volume in wire.spec.volumes or ()
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None
    )


def _devices(wire: WirePod) -> tuple[ClaimUse, ...]:
    """The pod's ResourceClaims; one from a template is named in the pod's status, null if none is
    needed.
    """
    claim_names = {}
    for device_source in wire.status.resource_claim_statuses or ():
        claim_names[device_source.name] = device_source

    has_group = wire.spec.scheduling_group is not None and bool(
        wire.spec.scheduling_group.pod_group_name
    )
    uses = []

    for source in wire.spec.resource_claims or ():
        direct = source.resource_claim_name
        if direct is not None:
            direct = direct[:NAME_KEPT]

        template = source.resource_claim_template_name
        entry = ClaimEntry(source.name, direct or "", template or "") if has_group else None

        if direct is not None:
            uses.append(ClaimUse(direct, device=True, entry=entry))
        elif template is not None:
            name = (
                claim_names[source.name].resource_claim_name if source.name in claim_names else ""
            )
            if name is not None:
                uses.append(ClaimUse(name, ephemeral=True, device=True, entry=entry))

    return tuple(uses)


def _scheduled_condition(status: PodStatus) -> ScheduledCondition | None:
    for condition in conditions(status):
        if condition.type == "PodScheduled":
            return ScheduledCondition(
                condition.status,
                condition.reason[:TEXT_KEPT],
                condition.message[:TEXT_KEPT],
            )

    return None


def _rejection(status: PodStatus) -> str:
    """Why the kubelet rejected the pod, in its words; "" for a pod that it did not.

    The kubelet begins the message of all its rejections alike, whatever their reason. The reasons
    are for kubelets that did not yet.
    """
    if status.phase != FAILED:
        return ""

    is_rejected = status.message.startswith(REJECTED)
    if not is_rejected and not status.reason.startswith(KUBELET_REJECTIONS):
        return ""

    why = status.message.removeprefix(REJECTED).strip()
    return ": ".join(part for part in (status.reason, why) if part)[:TEXT_KEPT]


def controller_of(owners: Iterable[Owner] | None) -> Owner:
    """The controller among the owners that an object names, `NO_CONTROLLER` if there is none."""
    for owner in owners or ():
        if owner.controller and may_name_an_object(owner):
            return owner

    return NO_CONTROLLER


def may_name_an_object(owner: Owner) -> bool:
    """Whether an owner's names are short enough: API servers take megabytes there."""
    return max(map(len, (owner.kind, owner.name, owner.uid))) <= NAME_KEPT


def _is_disruption_target(status: PodStatus) -> bool:
    """Whether we are evicting the pod, or were when somebody last looked (semantics V24)."""
    # A search in the raw bytes first: few pods need their conditions decoded.
    if TARGET_TYPE not in bytes(status.conditions):
        return False

    return any(
        (wire_condition.type, wire_condition.status, wire_condition.reason, wire_condition.message)
        == (DISRUPTION_TARGET, "True", PREEMPTED_BY_SCHEDULER, VICTIM_MESSAGE)
        for wire_condition in conditions(status)
    )


# Pods of one job are created in the same second.
@lru_cache(maxsize=256)
def seconds(timestamp: str) -> int:
    """Epoch seconds of an RFC 3339 text; 0 if it is not a time."""
    try:
        return int(datetime.fromisoformat(timestamp).timestamp())
    except ValueError:
        return 0
