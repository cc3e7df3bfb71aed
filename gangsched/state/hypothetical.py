"""A gang that does not exist, as a plan would see it: for PlacementReviews (docs/visibility.md).

Invariant: it is derived from its pods by the same code as a gang whose pods exist; the state is
unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from gangsched.api import keys
from gangsched.api.gang_spec import GangDefaults
from gangsched.core.stand_ins import with_all
from gangsched.model.gang import Gang, Group, Mode, Refusal
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import Worded
from gangsched.state.cluster import Cluster
from gangsched.state.gang_view import gang_view
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.members import Member, State
from gangsched.state.rule_set import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPart:
    """One part of a tree: a gang with `pods`, or a parent without pods; `name` and `parent` are
    names of PodGroups.
    """

    name: str
    parent: str = ""
    pods: tuple[Pod, ...] = ()
    min_member: int | None = None
    min_children: int | None = None
    topology: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The gang `id` with these `pods`, all in one namespace; `min_member` and `mode` override what
    the pods declare.

    If no minimum is declared, all pods are needed. With `parts` it is the tree that these parts
    form, and `pods` are the pods of all parts. With `exists` it is the gang `id` as it is, and
    `pods` are empty.
    """

    id: str
    pods: tuple[Pod, ...]
    min_member: int | None = None
    mode: Mode | None = None
    parts: tuple[WantedPart, ...] = ()
    exists: bool = False


@dataclass(frozen=True, slots=True)
class Hypothetical:
    """The group, and problems of its declaration; `others` are the gangs that it lists.

    `gang` is the gang that is asked about, "" for the whole group.
    """

    group: Group
    problems: tuple[str, ...]
    others: tuple[str, ...]
    gang: str = ""


def hypothetical(
    wanted: Wanted,
    defaults: GangDefaults,
    policy: GpuPolicy,
    *,
    created_s: int,
) -> Hypothetical:
    """The group of a gang or tree created at `created_s`."""
    if wanted.parts:
        return _tree(wanted, defaults, policy, created_s)

    # Records of its own, which nobody else sees: the state must look afterwards as if nobody had
    # asked.
    record = GangRecord(id=wanted.id, ours=True)
    for pod in wanted.pods:
        record.members[pod.uid] = Member(
            pod,
            State.GATED if pod.gated else State.PENDING,
            wanted.id,
        )

    record.pod_groups[keys.X_K8S] = _pod_group(wanted, created_s)
    record.read_run_time(defaults.expected_runtime_s)
    record.read_spec(defaults=defaults)
    assert record.spec is not None
    gang = with_all(_with(gang_view(record, policy), wanted), policy)
    priority = max((pod.priority for pod in wanted.pods), default=0)
    others = tuple(other for other in record.spec.group if other != wanted.id)
    problems = tuple(problem.text for problem in record.problems)

    return Hypothetical(
        Group(id=wanted.id, gangs=(gang,), priority=priority, creation_s=created_s),
        problems,
        others,
    )


def existing(gang_id: str, registry: Registry, now_s: float) -> Hypothetical | None:
    """The group of a gang that is part of the state; None if there is none, or if no member
    waits.
    """
    record = registry.gangs.get(gang_id)
    if record is None or gang_id not in registry.group_of:
        return None

    group = registry.group(registry.group_of[gang_id], now_s)
    if not group.waits:
        return None

    problems = tuple(problem.text for problem in record.problems)
    return Hypothetical(group, problems, (), gang=gang_id)


def _tree(
    wanted: Wanted,
    defaults: GangDefaults,
    policy: GpuPolicy,
    created_s: int,
) -> Hypothetical:
    """The tree that the parts form by the rules for existing ones; a group with a refusal if they
    form none.
    """
    namespace = wanted.id.partition("/")[0]
    names = frozenset(pod.scheduler_name for pod in wanted.pods)

    # A registry of its own forms the tree, so that a review and an existing tree are refused by the
    # same rules.
    registry = Registry(Rules(scheduler_names=names, defaults=defaults, policy=policy))
    for part in wanted.parts:
        record = registry.gang(f"{namespace}/{part.name}")
        least = part.min_member if part.min_member is not None else len(part.pods)
        texts = {
            keys.PARENT[0]: part.parent,
            keys.TOPOLOGY[0]: part.topology,
            keys.MIN_CHILDREN[0]: "" if part.min_children is None else str(part.min_children),
        }
        stated = tuple(sorted((key, text) for key, text in texts.items() if text))
        of_gang = Wanted(record.id, part.pods, least)
        record.pod_groups[keys.X_K8S] = msgspec.structs.replace(
            _pod_group(of_gang, created_s),
            gang_metadata=stated,
        )

        for pod in part.pods:
            record.members[pod.uid] = Member(
                pod,
                State.GATED if pod.gated else State.PENDING,
                record.id,
            )

    registry.refresh(0.0)
    problems = tuple(
        problem.text for record in registry.gangs.values() for problem in record.problems
    )
    gangs = sorted(f"{namespace}/{part.name}" for part in wanted.parts if part.pods)
    groups = dict.fromkeys(registry.group_of[gang] for gang in gangs)

    refusal = next(
        (why for group in groups if (why := registry.groups[group].refusal) is not None), None
    )
    if len(groups) > 1 and refusal is None:
        refusal = Refusal(
            Reason.INVALID_GANG,
            Worded(f"the parts form {len(groups)} trees, but a review is about one"),
        )

    if refusal is None:
        return Hypothetical(
            structs.replace(registry.group(next(iter(groups)), 0.0), id=wanted.id, minimum=None),
            problems,
            (),
        )

    views = tuple(registry.view(gang) for gang in gangs)
    return Hypothetical(
        Group(id=wanted.id, gangs=views, creation_s=created_s, refusal=refusal),
        problems,
        (),
    )


def with_served(wanted: Wanted, cluster: Cluster) -> Wanted:
    """The same pods with the claims that gangsched would create for their extended resources.

    After the call the nodes of `cluster` offer these resources through devices, so call it in a
    separate process.
    """
    claimed: dict[str, Pod] = {}
    for pod in wanted.pods:
        claimed[pod.uid] = cluster.served.claimed(pod) if pod.shape.extended else pod

    if cluster.served.shows_more(at_once=True):
        cluster.serve()

    parts = tuple(
        replace(part, pods=tuple(claimed[pod.uid] for pod in part.pods)) for part in wanted.parts
    )
    return replace(wanted, pods=tuple(claimed.values()), parts=parts)


def with_minimum(group: Group, min_member: int) -> Group:
    """The same gang with another minimum."""
    (gang,) = group.gangs
    return structs.replace(group, gangs=(structs.replace(gang, min_member=min_member),))


def _with(gang: Gang, wanted: Wanted) -> Gang:
    minimum = wanted.min_member if wanted.min_member is not None else gang.min_member
    # slices are placed whole
    mode = gang.mode if gang.constraints.slices else wanted.mode or gang.mode
    return structs.replace(gang, min_member=minimum, mode=mode)


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
