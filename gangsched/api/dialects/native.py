"""Native PodGroups of `scheduling.k8s.io`: v1alpha2 of Kubernetes 1.36, v1alpha3 and v1beta1 of
1.37 (KEP-4671); and CompositePodGroups, v1alpha3 of 1.37 (KEP-6012).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, StrictStr, ValidationError
from pydantic.alias_generators import to_camel

from gangsched.api.dialects.spec import Count, DialectSpec, Readable
from gangsched.api.problem import quoted
from gangsched.api.values import INT32_MAX, BadValue, parse_level
from gangsched.model.gang import COMPOSITE_PREFIX
from gangsched.model.objects import ClaimEntry, PodGroup

PARENT: Final = "parentCompositePodGroupName"


class GangPolicy(Readable):
    """Gang scheduling: at least `min_count` members start together, or none."""

    min_count: Count | None = None


class SchedulingPolicy(Readable):
    """Either `basic` (every member is scheduled alone) or `gang`."""

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


class GroupClaim(BaseModel):
    """An entry of spec.resourceClaims, which names either a claim or a template (gate
    DRAWorkloadResourceClaims).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    name: StrictStr
    resource_claim_name: StrictStr | None = None
    resource_claim_template_name: StrictStr | None = None

    @property
    def entry(self) -> ClaimEntry | None:
        """The claim or template; None if the entry names both or neither."""
        claim = self.resource_claim_name or ""
        template = self.resource_claim_template_name or ""
        if bool(claim) != bool(template):
            return ClaimEntry(self.name, claim, template)

        return None


class _GroupSpec(DialectSpec):
    """What both kinds may state. The disruption mode (KEP-5710) is "PodGroup" or "Pod" in
    Kubernetes 1.36, and an object with `all` or `single` in later versions.

    Kubernetes 1.37 stores `single` if no mode is set.
    """

    disruption_mode: str | dict[str, Any] | None = None
    preemption_policy: str | None = None
    priority: int | None = None
    scheduling_constraints: dict[str, Any] | None = None
    parent_composite_pod_group_name: Any = None

    def _common(self, pod_group: PodGroup, where: str, unsupported: Sequence[str] = ()) -> PodGroup:
        """Add the supported values, and sentences about those that are not, the fields in
        `unsupported` included.
        """
        mode = self.disruption_mode
        topology = self._topology()
        parent = self.parent_composite_pod_group_name
        fields = list(unsupported)

        if any((self.scheduling_constraints or {}).values()) and not topology:
            # All or nothing: a constraint that is read in part would place the gang where it must
            # not be.
            fields.insert(0, "schedulingConstraints")

        unread = (
            ()
            if isinstance(parent, str | None)
            else (f"spec.{PARENT} {quoted(parent)} of {where} is not a name",)
        )
        return replace(
            pod_group,
            indivisible=mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode),
            disrupted_singly=mode == "Pod" or (isinstance(mode, dict) and "single" in mode),
            never_preempts=self.preemption_policy == "Never",
            topology=topology,
            priority=self.priority or 0,
            parent=f"{COMPOSITE_PREFIX}{parent}" if isinstance(parent, str) and parent else "",
            invalid=unread,
            unsupported=tuple(
                f"spec.{name} of {where} is not supported by gangsched yet: remove it, or leave the"
                " gang to kube-scheduler"
                for name in fields
            ),
        )

    def _topology(self) -> tuple[str, ...]:
        """Node labels of the levels at which one domain must hold the group; empty unless all keys
        are valid.
        """
        constraints = {}
        for name, value in (self.scheduling_constraints or {}).items():
            if value:
                constraints[name] = value

        stated = constraints.pop("topology", None)
        if constraints or not isinstance(stated, list):
            return ()

        keys_stated = [
            constraint.get("key")
            for constraint in stated
            if isinstance(constraint, dict) and len(constraint) == 1
        ]
        levels = [
            constraint for constraint in keys_stated if isinstance(constraint, str) and constraint
        ]
        if len(levels) < len(stated):
            return ()

        try:
            return tuple(sorted({str(parse_level(level)) for level in levels}))
        except BadValue:
            return ()


class NativeSpec(_GroupSpec):
    """The spec of a native PodGroup."""

    scheduling_policy: SchedulingPolicy | None = None
    resource_claims: list[Any] | None = None

    def declared(self, pod_group: PodGroup, where: str) -> PodGroup:
        """Add the supported values of the spec, and messages about fields that are refused or have
        no effect.
        """
        claims = self._claims()
        unsupported = ("resourceClaims",) if len(claims) < len(self.resource_claims or ()) else ()
        return replace(
            self._common(pod_group, where, unsupported),
            min_member=self._min_member(),
            claims=claims,
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
        names = []
        for claim in self.resource_claims or ():
            with suppress(ValidationError):
                names.append(GroupClaim.model_validate(claim).entry)

        return tuple(entry for entry in names if entry is not None)


class CompositeSpec(_GroupSpec):
    """The spec of a CompositePodGroup: `basic`, in which each child starts by itself, or `gang`,
    with a minimum number of children. The policy accepts any type, so that a malformed one refuses
    the tree instead of starting it in parts.
    """

    scheduling_policy: Any = None

    def declared(self, pod_group: PodGroup, where: str) -> PodGroup:
        """Add the supported values of the spec, and messages about fields that are refused or have
        no effect.
        """
        policy = self.scheduling_policy if isinstance(self.scheduling_policy, Mapping) else {}
        gang = policy.get("gang")
        least = gang.get("minGroupCount") if isinstance(gang, Mapping) else None
        common = replace(
            self._common(pod_group, where),
            name=f"{COMPOSITE_PREFIX}{pod_group.name}",
            of_object=pod_group.name,
            min_member=0,
            is_composite=True,
            priority=0,
        )

        if self.priority:
            text = (
                f"spec.priority {self.priority} of {where} is not used: gangsched uses the"
                " priorities of its pods"
            )
            common = replace(common, not_used=(text,))

        if isinstance(least, int) and not isinstance(least, bool) and 1 <= least <= INT32_MAX:
            return replace(common, min_children=least)
        if gang is None and isinstance(policy.get("basic"), Mapping):
            return replace(common, min_children=0)

        stated = quoted(self.scheduling_policy)
        text = (
            f"spec.schedulingPolicy {stated} of {where} has neither basic nor a minGroupCount above"
            " 0: correct it"
        )
        return replace(common, invalid=(*common.invalid, text))
