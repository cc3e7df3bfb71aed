"""Wire types: the fields of pods, nodes, lists and watch lines that the daemon reads.

Invariant: types only, with the API's field names; msgspec skips all other fields without building
them. `msgspec.Raw` marks fields that need not be decoded for most objects. `decode` converts these
structs into the model.
"""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Raw

from gangsched.model.bounds import UP_TO_FEW, UP_TO_MANY, UP_TO_SOME
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Taint, Toleration

W = TypeVar("W")
EMPTY = Raw(b"")


class Wire(msgspec.Struct, gc=False, rename="camel"):
    """Base of the wire structs."""


class ObjectIdentity(Wire):
    """The part of metav1.ObjectMeta that says which object this is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Owner(Wire):
    """metav1.OwnerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(ObjectIdentity):
    """metav1.ObjectMeta."""

    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Annotated[dict[str, str], UP_TO_MANY] | None = None
    annotations: Annotated[dict[str, str], UP_TO_MANY] | None = None
    owner_references: Annotated[list[Owner], UP_TO_SOME] | None = None


class Identified(Wire):
    """Any object; only its identity is decoded."""

    metadata: ObjectIdentity = msgspec.field(default_factory=ObjectIdentity)


Amounts = Annotated[dict[str, str | int | float], UP_TO_FEW]


class Resources(Wire):
    """v1.ResourceRequirements; limits are folded into requests by admission."""

    requests: Amounts | None = None


class Port(Wire, omit_defaults=True):
    """v1.ContainerPort."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class Container(Wire, omit_defaults=True):
    """v1.Container."""

    name: str = ""
    resources: Resources | None = None
    ports: Annotated[list[Port], UP_TO_MANY] | None = None
    restart_policy: str = ""


class Term(Wire, omit_defaults=True):
    """v1.NodeSelectorTerm."""

    match_expressions: Annotated[tuple[Requirement, ...], UP_TO_SOME] = ()
    match_fields: Annotated[tuple[Requirement, ...], UP_TO_SOME] = ()


class NodeSelector(Wire, omit_defaults=True):
    """v1.NodeSelector."""

    node_selector_terms: Annotated[tuple[Term, ...], UP_TO_SOME] | None = None


class Preferred(Wire, omit_defaults=True):
    """v1.PreferredSchedulingTerm."""

    weight: int = 1
    preference: Term = msgspec.field(default_factory=Term)


class WireNodeAffinity(Wire, omit_defaults=True):
    """v1.NodeAffinity."""

    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution",
        default=None,
    )
    preferred: Annotated[tuple[Preferred, ...], UP_TO_SOME] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution",
        default=None,
    )


class Ignored(Wire):
    """An object whose content does not matter, only that it exists."""


class LabelSelector(Wire, omit_defaults=True):
    """metav1.LabelSelector."""

    match_labels: Annotated[dict[str, str], UP_TO_MANY] | None = None
    match_expressions: Annotated[tuple[Requirement, ...], UP_TO_SOME] | None = None


class AffinityTerm(Wire, omit_defaults=True):
    """v1.PodAffinityTerm; the API server has folded matchLabelKeys and mismatchLabelKeys into the
    selector.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: Annotated[tuple[str, ...], UP_TO_MANY] | None = None
    namespace_selector: LabelSelector | None = None


class WeightedTerm(Wire, omit_defaults=True):
    """v1.WeightedPodAffinityTerm."""

    weight: int = 1
    pod_affinity_term: AffinityTerm = msgspec.field(default_factory=AffinityTerm)


class WirePodAffinity(Wire, omit_defaults=True):
    """v1.PodAffinity and v1.PodAntiAffinity."""

    required: Annotated[tuple[AffinityTerm, ...], UP_TO_FEW] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution",
        default=None,
    )
    preferred: Annotated[tuple[WeightedTerm, ...], UP_TO_FEW] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution",
        default=None,
    )


class Affinity(Wire, omit_defaults=True):
    """v1.Affinity."""

    node_affinity: WireNodeAffinity | None = None
    pod_affinity: WirePodAffinity | None = None
    pod_anti_affinity: WirePodAffinity | None = None


class SpreadConstraint(Wire, omit_defaults=True):
    """v1.TopologySpreadConstraint."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: Annotated[tuple[str, ...], UP_TO_MANY] | None = None


class ClaimSource(Wire, omit_defaults=True):
    """v1.PersistentVolumeClaimVolumeSource."""

    claim_name: str = ""


class WirePodVolume(Wire, omit_defaults=True):
    """v1.Volume: only the kinds that limit where a pod can run."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Ignored | None = None


class SchedulingGroup(Wire):
    """spec.schedulingGroup of Kubernetes 1.36 and later."""

    pod_group_name: str = ""


class DeviceSource(Wire, omit_defaults=True):
    """v1.PodResourceClaim; in a pod's status v1.PodResourceClaimStatus."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Wire):
    """v1.PodSpec."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    node_selector: Annotated[dict[str, str], UP_TO_MANY] | None = None
    affinity: Affinity | None = None
    tolerations: Annotated[tuple[Toleration, ...], UP_TO_SOME] | None = None
    containers: Annotated[list[Container], UP_TO_SOME] | None = None  # null in bookmarks
    init_containers: Annotated[list[Container], UP_TO_SOME] | None = None
    resources: Resources | None = None
    overhead: Amounts | None = None
    scheduling_gates: Annotated[list[Ignored], UP_TO_SOME] | None = None
    topology_spread_constraints: Annotated[list[SpreadConstraint], UP_TO_FEW] | None = None
    volumes: Annotated[list[WirePodVolume], UP_TO_MANY] | None = None
    resource_claims: Annotated[list[DeviceSource], UP_TO_SOME] | None = None
    scheduling_group: SchedulingGroup | None = None
    active_deadline_seconds: int | None = None


class WireCondition(Wire):
    """v1.PodCondition; a metav1.Condition has the same fields."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ContainerTerminated(Wire):
    """v1.ContainerStateTerminated."""

    exit_code: int = 0
    reason: str = ""
    finished_at: str | None = None


class ContainerState(Wire):
    """v1.ContainerState: how the container ended, if it did."""

    terminated: ContainerTerminated | None = None


class ContainerStatus(Wire):
    """v1.ContainerStatus: the resources that the container really has, and how it ended."""

    name: str = ""
    allocated_resources: Amounts | None = None
    resources: Resources | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    restart_count: int = 0


Statuses = Annotated[list[ContainerStatus], UP_TO_SOME]
Conditions = Annotated[list[WireCondition], UP_TO_SOME]
"""The types of fields of a pod's status that stay raw."""


class ExtendedClaimStatus(Wire):
    """v1.PodExtendedResourceClaimStatus."""

    resource_claim_name: str = ""


class PodStatus(Wire):
    """v1.PodStatus. Conditions and container statuses stay raw: few pods need them decoded."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    resources: Resources | None = None
    allocated_resources: Amounts | None = None
    conditions: Raw = EMPTY
    container_statuses: Raw = EMPTY
    init_container_statuses: Raw = EMPTY
    resource_claim_statuses: Annotated[list[DeviceSource], UP_TO_SOME] | None = None
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class WirePod(Wire):
    """v1.Pod."""

    metadata: Meta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class OutlineMeta(ObjectIdentity):
    """metav1.ObjectMeta without bounds, of an object that is above one."""

    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class OutlineResources(Wire):
    """v1.ResourceRequirements."""

    requests: dict[str, str | int | float] | None = None


class OutlineContainer(Wire):
    """v1.Container: what it requests."""

    resources: OutlineResources | None = None
    restart_policy: str = ""


class OutlineRequests(Wire):
    """v1.PodSpec: what the pod requests."""

    containers: list[OutlineContainer] | None = None
    init_containers: list[OutlineContainer] | None = None
    resources: OutlineResources | None = None
    overhead: dict[str, str | int | float] | None = None


class OutlineSpec(Wire):
    """v1.PodSpec: which pod it is, and whether it has a node. What it requests stays raw, since it
    may be what cannot be decoded.
    """

    node_name: str = ""
    scheduler_name: str = ""
    scheduling_group: SchedulingGroup | None = None
    containers: Raw = EMPTY
    init_containers: Raw = EMPTY
    resources: Raw = EMPTY
    overhead: Raw = EMPTY


class OutlineStatus(Wire):
    """v1.PodStatus: whether it has ended."""

    phase: str = ""


class PodOutline(Wire):
    """v1.Pod that cannot be decoded as WirePod: what says where it is, and which gang it belongs
    to.
    """

    metadata: OutlineMeta
    spec: OutlineSpec = msgspec.field(default_factory=OutlineSpec)
    status: OutlineStatus = msgspec.field(default_factory=OutlineStatus)


class WireNamespace(Wire):
    """v1.Namespace."""

    metadata: Meta


class ServiceSpec(Wire):
    """v1.ServiceSpec."""

    selector: Annotated[dict[str, str], UP_TO_MANY] | None = None


class WireService(Wire):
    """v1.Service."""

    metadata: ObjectIdentity
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class NodeSpec(Wire):
    """v1.NodeSpec."""

    unschedulable: bool = False
    taints: Annotated[tuple[Taint, ...], UP_TO_SOME] | None = None


class NodeStatus(Wire):
    """v1.NodeStatus."""

    #: Of an administrator's object, which has a resource for each kind of device of the node.
    allocatable: Annotated[dict[str, str | int | float], UP_TO_SOME] | None = None


class WireNode(Wire):
    """v1.Node."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class DisruptionBudgetSpec(Wire):
    """policy/v1 PodDisruptionBudgetSpec."""

    selector: LabelSelector | None = None


class DisruptionBudgetStatus(Wire):
    """policy/v1 PodDisruptionBudgetStatus."""

    observed_generation: int = 0
    disruptions_allowed: int = 0


class GenerationMeta(Meta):
    """metav1.ObjectMeta, with the generation."""

    generation: int = 0


class WireDisruptionBudget(Wire):
    """policy/v1 PodDisruptionBudget."""

    metadata: GenerationMeta
    spec: DisruptionBudgetSpec = msgspec.field(default_factory=DisruptionBudgetSpec)
    status: DisruptionBudgetStatus = msgspec.field(default_factory=DisruptionBudgetStatus)


class ListMeta(Wire):
    """metav1.ListMeta."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class Page(Wire, Generic[W]):
    """One page of a list."""

    metadata: ListMeta
    items: list[W] | None = None


class Line(Wire, Generic[W]):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and an object (a Status for
    ERROR).
    """

    type: str
    object: W


class ErrorStatus(Wire):
    """metav1.Status in an ERROR line."""

    code: int = 0
    reason: str = ""
    message: str = ""
