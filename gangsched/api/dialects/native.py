"""Native PodGroups of `scheduling.k8s.io`: v1alpha2 of Kubernetes 1.36, v1alpha3 and v1beta1 of 1.37 (KEP-4671)."""

from __future__ import annotations

from typing import Any

from gangsched.api.dialects.spec import Count, Declared, DialectSpec, Readable
from gangsched.api.values import BadValue, parse_level


class GangPolicy(Readable):
    """Gang scheduling: at least `min_count` members start together, or none."""

    min_count: Count | None = None


class SchedulingPolicy(Readable):
    """Either `basic` (every member is scheduled alone) or `gang`."""

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


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
        mode, topology = self.disruption_mode, self._topology()
        constraints = any((self.scheduling_constraints or {}).values()) and not topology
        asked = {
            "schedulingConstraints": constraints,
            "resourceClaims": self.resource_claims,
            "parentCompositePodGroupName": self.parent_composite_pod_group_name,
        }
        return Declared(
            min_member=self._min_member(),
            indivisible=mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode),
            disrupted_singly=mode == "Pod" or (isinstance(mode, dict) and "single" in mode),
            never_preempts=self.preemption_policy == "Never",
            topology=topology,
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
