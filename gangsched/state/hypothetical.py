"""A gang that does not exist, as a plan would see it: for PlacementReviews (docs/visibility.md).

Invariant: it is derived from its pods by the same code as a gang whose pods exist; the state is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gangsched.api import keys
from gangsched.api.gang_spec import GangDefaults
from gangsched.core.stand_ins import with_all
from gangsched.model.gang import Gang, Group, Mode
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod, PodGroup
from gangsched.state.gang_view import gang_view
from gangsched.state.gangs import GangRecord
from gangsched.state.members import Member, State


@dataclass(frozen=True, slots=True)
class Wanted:
    """The gang `id` with these `pods`, all in one namespace; `min_member` and `mode` override what the pods declare.

    If no minimum is declared, all pods are needed.
    """

    id: str
    pods: tuple[Pod, ...]
    min_member: int | None = None
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Hypothetical:
    """The group, and problems of its declaration; `others` are the gangs that it lists."""

    group: Group
    problems: tuple[str, ...]
    others: tuple[str, ...]


def hypothetical(wanted: Wanted, defaults: GangDefaults, policy: GpuPolicy, *, created_s: int) -> Hypothetical:
    """The group of a gang created at `created_s`."""
    record = GangRecord(id=wanted.id, ours=True)
    for pod in wanted.pods:
        record.members[pod.uid] = Member(pod, State.GATED if pod.gated else State.PENDING, wanted.id)
    record.pod_groups[keys.X_K8S] = _pod_group(wanted, created_s)
    record.read_run_time(defaults.expected_runtime_s)
    record.read_spec(defaults=defaults)
    assert record.spec is not None
    gang = with_all(_with(gang_view(record, policy), wanted), policy)
    priority = max((pod.priority for pod in wanted.pods), default=0)
    others = tuple(other for other in record.spec.group if other != wanted.id)
    problems = tuple(problem.text for problem in record.problems)
    return Hypothetical(Group(id=wanted.id, gangs=(gang,), priority=priority, creation_s=created_s), problems, others)


def with_minimum(group: Group, min_member: int) -> Group:
    """The same gang with another minimum."""
    (gang,) = group.gangs
    return replace(group, gangs=(replace(gang, min_member=min_member),))


def _with(gang: Gang, wanted: Wanted) -> Gang:
    minimum = wanted.min_member if wanted.min_member is not None else gang.min_member
    mode = gang.mode if gang.constraints.slices else wanted.mode or gang.mode  # slices are placed whole
    return replace(gang, min_member=minimum, mode=mode)


def _pod_group(wanted: Wanted, created_s: int) -> PodGroup:
    """The PodGroup that states the minimum, where the pods do not."""
    namespace, _, name = wanted.id.partition("/")
    stated = wanted.min_member if wanted.min_member is not None else len(wanted.pods)
    return PodGroup(
        api_group=keys.X_K8S,
        version="v1alpha1",
        namespace=namespace,
        name=name,
        uid="",
        creation_s=created_s,
        min_member=stated,
    )
