"""ProvisioningRequests of `autoscaling.x-k8s.io`: rights, served version, and decoding (semantics
E10).

Invariant: as in `decode`. Conditions of types that are not known are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from gangsched.kube.http import permissions
from gangsched.kube.http.answers import decoded
from gangsched.kube.http.faults import NOT_FOUND, ApiFault
from gangsched.kube.read.decode import NAME_KEPT, may_name_an_object, seconds
from gangsched.kube.read.optional_rights import OptionalRights
from gangsched.kube.read.wire import Meta, Owner, Wire, WireCondition
from gangsched.model.bounds import UP_TO_SOME
from gangsched.model.provisioning import ProvisioningRequest, ProvisioningState

GROUP: Final = "autoscaling.x-k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
"""Those that gangsched knows, the preferred one first; the fields that it uses are the same."""
RESIZE_REQUEST: Final = "ResizeRequestName"
"""The detail by which `queued-provisioning.gke.io` marks the nodes of a request."""
REQUESTED_BY: Final = "gangsched.dev/requested-by"
"""The label with the scheduler that made a request."""


class TemplateRef(Wire):
    """autoscaling.x-k8s.io Reference."""

    name: str = ""


class WirePodSet(Wire):
    """autoscaling.x-k8s.io PodSet."""

    pod_template_ref: TemplateRef = msgspec.field(default_factory=TemplateRef)


class WireProvisioningSpec(Wire):
    """autoscaling.x-k8s.io ProvisioningRequestSpec."""

    pod_sets: Annotated[list[WirePodSet], UP_TO_SOME] | None = None


class WireRequestCondition(WireCondition):
    """metav1.Condition."""

    last_transition_time: str = ""


class WireProvisioningStatus(Wire):
    """autoscaling.x-k8s.io ProvisioningRequestStatus."""

    conditions: Annotated[list[WireRequestCondition], UP_TO_SOME] | None = None
    provisioning_class_details: dict[str, str] | None = None


class WireProvisioningRequest(Wire):
    """autoscaling.x-k8s.io ProvisioningRequest."""

    metadata: Meta
    spec: WireProvisioningSpec = msgspec.field(default_factory=WireProvisioningSpec)
    status: WireProvisioningStatus = msgspec.field(default_factory=WireProvisioningStatus)


class _ServedVersion(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    """metav1.APIGroup."""

    versions: list[_ServedVersion] = []


_group_decoder = msgspec.json.Decoder(_Group)

STATES: Final = (
    ("Failed", "True", ProvisioningState.FAILED),
    ("CapacityRevoked", "True", ProvisioningState.REVOKED),
    ("BookingExpired", "True", ProvisioningState.EXPIRED),
    ("Provisioned", "True", ProvisioningState.PROVISIONED),
    ("Provisioned", "False", ProvisioningState.NOT_YET),
    ("Accepted", "True", ProvisioningState.ACCEPTED),
)
"""Type and status of a condition, and what it means; the first that holds wins."""


def decode_provisioning_request(wire: WireProvisioningRequest) -> ProvisioningRequest:
    """The request, and what an autoscaler says of it."""
    meta = wire.metadata
    owners = meta.owner_references or []
    owner = Owner()
    # One of ours has no controller, and names that objects have.
    if len(owners) == 1 and may_name_an_object(owners[0]):
        owner = owners[0]

    state, message = _answer(wire.status.conditions or [])
    created = meta.creation_timestamp
    details = wire.status.provisioning_class_details or {}

    return ProvisioningRequest(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        owner_uid=owner.uid,
        owner_kind=owner.kind,
        owner_name=owner.name,
        requested_by=(meta.labels or {}).get(REQUESTED_BY, ""),
        creation_s=seconds(created) if created else 0,
        accepted_s=_accepted_s(wire.status.conditions or []),
        resize_request=details.get(RESIZE_REQUEST, ""),
        deleting=meta.deletion_timestamp is not None,
        templates=_templates(wire.spec.pod_sets or ()),
        state=state,
        message=message,
    )


def _templates(pod_sets: Iterable[WirePodSet]) -> tuple[str, ...]:
    names = []
    for pod_set in pod_sets:
        names.append(pod_set.pod_template_ref.name[:NAME_KEPT])

    return tuple(names)


def _accepted_s(conditions: list[WireRequestCondition]) -> int:
    """When an autoscaler accepted a request; 0 if none has, or if it says no time."""
    for condition in conditions:
        if condition.type == "Accepted" and condition.status == "True":
            accepted = condition.last_transition_time
            return seconds(accepted) if accepted else 0

    return 0


def _answer(conditions: list[WireRequestCondition]) -> tuple[ProvisioningState, str]:
    by_type = {condition.type: condition for condition in conditions}
    is_accepted = "Accepted" in by_type and by_type["Accepted"].status == "True"

    for kind, status, state in STATES:
        condition = by_type.get(kind)
        if condition is None or condition.status != status:
            continue

        # Nobody has taken it up, whatever its other conditions say.
        if state is ProvisioningState.NOT_YET and not is_accepted:
            continue

        if state is ProvisioningState.ACCEPTED:
            return state, ""

        parts = (condition.reason, condition.message)
        return state, ": ".join(part for part in parts if part)

    return ProvisioningState.NEW, ""


class ProvisioningRights(OptionalRights):
    """`version` is the one that is served, once that is known."""

    refused = "No autoscaler is asked for nodes by ProvisioningRequests. {}"
    restored = "Autoscalers are asked for nodes by ProvisioningRequests from now on."

    version = VERSIONS[0]

    async def obstacle(self) -> str:
        """Why no requests can be made; "" if they can. Raises Fault."""
        missing = await permissions.missing(self._client, permissions.PROVISIONING)
        if missing:
            return permissions.may_not(missing, "rbac-provisioning.yaml")

        try:
            answer = await self._client.request("GET", f"/apis/{GROUP}")
        except ApiFault as fault:
            if fault.status == NOT_FOUND:
                return "The API server does not serve ProvisioningRequests."

            raise

        group = decoded(_group_decoder, answer, f"The list of versions of {GROUP} is not one")
        served = {entry.version for entry in group.versions}
        known = [version for version in VERSIONS if version in served]
        if not known:
            return f"The API server serves no known version of {GROUP}."

        self.version = known[0]
        return ""
