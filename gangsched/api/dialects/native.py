"""Native PodGroups of `scheduling.k8s.io`: v1alpha2 of Kubernetes 1.36, v1alpha3 and v1beta1 of 1.37 (KEP-4671)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, StrictStr, ValidationError
from pydantic.alias_generators import to_camel

from gangsched.api.dialects.spec import Count, Declared, DialectSpec, Readable
from gangsched.api.values import BadValue, parse_level
from gangsched.model.objects import ClaimEntry


class GangPolicy(Readable):
    """Gang scheduling: at least `min_count` members start together, or none."""

    min_count: Count | None = None


class SchedulingPolicy(Readable):
    """Either `basic` (every member is scheduled alone) or `gang`."""

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


class GroupClaim(BaseModel):
    """An entry of spec.resourceClaims, which names either a claim or a template (gate DRAWorkloadResourceClaims)."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    name: StrictStr
    resource_claim_name: StrictStr | None = None
    resource_claim_template_name: StrictStr | None = None

    @property
    def entry(self) -> ClaimEntry | None:
        """The entry; None unless it names one of the two."""
        claim, template = self.resource_claim_name or "", self.resource_claim_template_name or ""
        return ClaimEntry(self.name, claim, template) if bool(claim) != bool(template) else None


class NativeSpec(DialectSpec):
    """The spec of a native PodGroup. The disruption mode (KEP-5710) is "PodGroup" or "Pod" in Kubernetes 1.36, and an
    object with `all` or `single` in later versions.

    Kubernetes 1.37 stores `single` if no mode is set.
    """

    scheduling_policy: SchedulingPolicy | None = None
    disruption_mode: str | dict[str, Any] | None = None
    preemption_policy: str | None = None
    priority: int | None = None
    scheduling_constraints: dict[str, Any] | None = None
    resource_claims: list[Any] | None = None
    parent_composite_pod_group_name: str | None = None

    def declared(self, where: str) -> Declared:
        """The supported values of the spec, and sentences about the others."""
        mode, topology, claims = self.disruption_mode, self._topology(), self._claims()
        constraints = any((self.scheduling_constraints or {}).values()) and not topology
        asked = {
            "schedulingConstraints": constraints,
            "resourceClaims": len(claims) < len(self.resource_claims or ()),
            "parentCompositePodGroupName": self.parent_composite_pod_group_name,
        }
        return Declared(
            min_member=self._min_member(),
            indivisible=mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode),
            disrupted_singly=mode == "Pod" or (isinstance(mode, dict) and "single" in mode),
            never_preempts=self.preemption_policy == "Never",
            topology=topology,
            claims=claims,
            priority=self.priority or 0,
            unsupported=tuple(
                f"spec.{name} of {where} is not supported by gangsched yet: remove it, or leave the gang to "
                "kube-scheduler"
                for name, is_set in asked.items()
                if is_set
            ),
        )

    def _min_member(self) -> int | None:
        """Minimum that follows from the policy; None without a policy."""
        policy = self.scheduling_policy
        if policy is None:
            return None
        if policy.gang is not None:
            return policy.gang.min_count
        return 0 if policy.basic is not None else None

    def _claims(self) -> tuple[ClaimEntry, ...]:
        """The claims of the group, without entries that gangsched cannot read."""
        found = []
        for each in self.resource_claims or ():
            with suppress(ValidationError):
                found.append(GroupClaim.model_validate(each).entry)
        return tuple(entry for entry in found if entry is not None)

    def _topology(self) -> tuple[str, ...]:
        """Node labels of the levels at which one domain must hold the group; empty unless all keys are valid."""
        constraints = {name: value for name, value in (self.scheduling_constraints or {}).items() if value}
        stated = constraints.pop("topology", None)
        if constraints or not isinstance(stated, list):
            return ()
        found = [each.get("key") for each in stated if isinstance(each, dict) and len(each) == 1]
        levels = [each for each in found if isinstance(each, str) and each]
        if len(levels) < len(stated):
            return ()
        try:
            return tuple(sorted({str(parse_level(each)) for each in levels}))
        except BadValue:
            return ()
