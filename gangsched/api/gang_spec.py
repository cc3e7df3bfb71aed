"""The specification of a gang, derived from its pods and its PodGroup (semantics I3).

Invariant: `gang_spec` never raises, whatever text a key has. Every value has a source, and every
text that is not used as written becomes a `Problem` (E4). The order of pods does not matter. This
module does *not* check whether several gangs agree to form one group (I4), because that check needs
all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import structs

from gangsched.api import keys
from gangsched.api.dialects.jobset import exclusive_jobs
from gangsched.api.dialects.kueue import KUEUE_PLACES, stated_by
from gangsched.api.later_members import ToCome, members_to_come
from gangsched.api.owner_declarations import (
    OwnerDeclaration,
    declared_children,
    declared_minimum,
    declared_parent,
)
from gangsched.api.problem import Problem, bad_value, instead, quoted
from gangsched.api.slice_layers import format_slices, parse_slices
from gangsched.api.stated import (
    PODS_NAMED,
    BadText,
    Origin,
    Statement,
    T,
    Value,
    disagreement,
    statement,
)
from gangsched.api.values import (
    parse_class,
    parse_count,
    parse_delay,
    parse_disruption,
    parse_flag,
    parse_gpu_product,
    parse_groups,
    parse_level,
    parse_match_policy,
    parse_mode,
    parse_parent,
    parse_strikes,
    parse_topology,
    parse_wait_time,
)
from gangsched.model.gang import Disruption, MatchPolicy, Mode
from gangsched.model.gpu_policy import NO_CONSTRAINTS, PlacementConstraints
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.resources import ResourceVector
from gangsched.model.text import counted

__all__ = [
    "GangDefaults",
    "GangSpec",
    "MatchPolicy",
    "Mode",
    "Problem",
    "gang_spec",
    "preemption_delay",
]

_DEFAULT: Final = "default"
_PREEMPTION_DELAY_MAX_S: Final = 3600.0
"""Upper limit of preemption delays: an autoscaler that has brought no node within the hour brings
none.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDefaults:
    """The administrator's defaults; `hold_max_s` is the upper limit of wait times.

    `expected_runtime_s` is the run time of pods that do not declare one (H1), None for unknown.
    """

    wait_time_s: float = 600.0
    hold_max_s: float = 3600.0
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    expected_runtime_s: float | None = None
    preempt_delay_s: float = 0.0
    #: Strikes after which a gang that states nothing avoids a node; 0 for never (L8).
    bad_node_strikes: int = 0
    #: The class of the ProvisioningRequests of gangs that name none, "" for no request (E10).
    provisioning_class: str = ""


class GangSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The values of a gang."""

    id: str
    min_member: int | None
    #: Expected number of members, never below `min_member` (I3).
    total: int
    mode: Mode
    wait_time_s: float
    #: Sorted, includes `id`; if the declared list omits it, the list as declared, which is refused
    #: (I4).
    group: tuple[str, ...]
    match_policy: MatchPolicy
    min_resources: ResourceVector = ()
    constraints: PlacementConstraints = NO_CONSTRAINTS
    preemption_delay_s: float = 0.0
    #: None where nothing states it.
    disruption: Disruption | None = None
    #: Strikes after which it avoids a node, 0 for never (L8).
    bad_node_strikes: int = 0
    #: The class of its ProvisioningRequest, "" or `none` for no request (E10).
    provisioning_class: str = ""
    #: Why the gang is uninitialised, None if it may be scheduled.
    waiting_for: str | None = None
    pod_group_missing: bool = False
    #: Requests that gangsched does not support, None for none.
    unsupported: str | None = None
    #: An error of the group or of the gang's tree.
    group_problem: str | None = None
    #: It waits because its owner is not known, or makes no pods now (O8).
    awaits_owner: bool = False
    #: Its minimum is what its owner declares.
    is_minimum_of_owner: bool = False
    #: Id of its parent, "" for none; the next two are what the gang declares for the parent (I9).
    parent: str = ""
    min_children: int | None = None
    tree_topology: tuple[str, ...] = ()
    #: Members that must exist before a start, if others are created only after these run, else 0
    #: (B8).
    first: int = 0
    #: What is wrong with its topology, tree or members to come.
    misplaced: str | None = None
    #: (name, value) of what few gangs state.
    rare: tuple[tuple[str, object], ...] = ()
    #: (value, source) for every value, in a fixed order.
    sources: tuple[tuple[str, str], ...] = ()
    problems: tuple[Problem, ...] = ()

    def is_child_of(self, parent: str) -> bool:
        """Whether the gang is a child of `parent`, and so decided together with its other children
        (I9).
        """
        return self.parent == parent and self.group_problem is None


def _listed(ids: tuple[str, ...]) -> str:
    return quoted(", ".join(ids[:10]))


def _seconds(seconds: float) -> str:
    """All digits of a year, too, where `g` alone writes 3.1536e+07."""
    return f"{seconds:.15g}s"


_MIN: Final = Value("min", keys.MIN, parse_count, "minMember")
_TOTAL: Final = Value("total", keys.TOTAL, parse_count)
_MODE: Final = Value("mode", keys.MODE, parse_mode)
_WAIT_TIME: Final = Value(
    "wait time",
    keys.WAIT_TIME,
    parse_wait_time,
    "scheduleTimeoutSeconds",
    _seconds,
)
_GROUP: Final = Value("groups", keys.GROUPS, parse_groups, show=_listed)
_PARENT: Final = Value("parent", keys.PARENT, parse_parent, "parentCompositePodGroupName")
_MIN_CHILDREN: Final = Value("min children", keys.MIN_CHILDREN, parse_count)
_DISRUPTION: Final = Value("disruption", keys.DISRUPTION, parse_disruption, "disruptionMode")
_MATCH_POLICY: Final = Value("match policy", keys.MATCH_POLICY, parse_match_policy)
_SHARED_GPUS: Final = Value("shared GPUs", keys.ALLOW_SHARED_GPUS, parse_flag)
_LEADER_FIRST: Final = Value("leader first", keys.LEADER_FIRST, parse_flag)
_KEEP_ROOM: Final = Value("keep room", keys.KEEP_ROOM, parse_flag)
_AVOID_BAD_NODES: Final = Value("avoid bad nodes", keys.AVOID_BAD_NODES, parse_strikes, show=str)
_PROVISIONING_CLASS: Final = Value("provisioning class", keys.PROVISIONING_CLASS, parse_class)
_GPU_PRODUCT: Final = Value("GPU product", keys.GPU_PRODUCT, parse_gpu_product)
_TOPOLOGY: Final = Value("topology", keys.TOPOLOGY, parse_topology, show=",".join)
_KUEUE_TOPOLOGY: Final = Value("topology for Kueue", keys.KUEUE_TOPOLOGY, parse_level)
_LWS_TOPOLOGY: Final = Value("topology for LeaderWorkerSet", keys.LWS_EXCLUSIVE, parse_level)
_JOBSET_TOPOLOGY: Final = Value("topology for JobSet", (keys.JOBSET_EXCLUSIVE,), parse_level)
_PREFERRED_TOPOLOGY: Final = Value("preferred topology", keys.PREFERRED_TOPOLOGY, parse_level)
_SLICES: Final = Value("slices", keys.SLICES, parse_slices, show=format_slices)
_PREEMPTION_DELAY: Final = Value(
    "preemption delay",
    keys.PREEMPTION_DELAY,
    parse_delay,
    show=_seconds,
)


def gang_spec(
    gang: str,
    declared: Sequence[Pod],
    pod_group: PodGroup | None,
    *,
    needs_pod_group: bool,
    defaults: GangDefaults,
    owner: OwnerDeclaration | None = None,
) -> GangSpec:
    """Specification of `gang`. `declared` has, for each distinct `gang_metadata` among the members,
    the oldest pod with it.

    Each value is read from the oldest pod, otherwise from the PodGroup, or for a gang of an `owner`
    from the owner, otherwise from the oldest pod that declares it, otherwise from the defaults.
    Pods that declare a different value are named in a Problem.
    """
    reader = _SpecReader(declared, pod_group, owner)
    min_member = reader.value(_MIN, spec=declared_minimum(pod_group, owner))
    timeout_s = pod_group.schedule_timeout_s if pod_group else None
    missing = needs_pod_group and pod_group is None
    total = reader.total(min_member)
    mode = reader.value_or(_MODE, Mode.STRICT)  # in the order of `sources`
    spec = GangSpec(
        id=gang,
        min_member=min_member,
        total=total,
        mode=mode,
        wait_time_s=reader.wait_time(defaults, timeout_s),
        group=(group := reader.value_or(_GROUP, (gang,))),
        match_policy=reader.value_or(_MATCH_POLICY, defaults.match_policy),
        min_resources=reader.min_resources(),
        constraints=_constraints(reader, pod_group),
        preemption_delay_s=reader.preemption_delay(defaults),
        disruption=reader.optional(_DISRUPTION, spec=_disruption_mode(pod_group)),
        bad_node_strikes=reader.optional(_AVOID_BAD_NODES) or defaults.bad_node_strikes,
        provisioning_class=reader.optional(_PROVISIONING_CLASS) or defaults.provisioning_class,
        group_problem=(
            None
            if gang in group
            else f"{reader.sources[_GROUP.name]} lists {_listed(group)} but not {_cut(gang)} itself"
        ),
        parent=(parent := reader.parent(gang, declared_parent(pod_group, owner, group, gang))),
        min_children=reader.value(
            _MIN_CHILDREN,
            spec=declared_children(pod_group, owner),
        ),
        tree_topology=pod_group.tree_topology if pod_group else (),
    )
    if not reader.has_exclusive_job:
        reader.problems += exclusive_jobs(reader.stated(), min_member)

    coming = reader.members_to_come(spec, pod_group)
    missing = missing or coming.lacks_pod_group
    spec = structs.replace(
        spec,
        first=coming.first,
        waiting_for=_waiting_for(gang, min_member, owner, missing=missing),
        awaits_owner=min_member is None and owner is not None and bool(owner.waits),
        is_minimum_of_owner=owner is not None and reader.sources[_MIN.name] == owner.who,
    )
    misplaced = reader.misplaced(spec) or coming.invalid
    waiting_for = spec.waiting_for or misplaced

    return structs.replace(
        spec,
        group_problem=spec.group_problem or _tree_problem(gang, group, parent),
        mode=reader.strict(spec),
        match_policy=reader.once(spec),
        waiting_for=waiting_for,
        pod_group_missing=missing,
        misplaced=misplaced,
        unsupported=coming.unsupported,
        rare=tuple(reader.rare.items()),
        sources=tuple(reader.sources.items()),
        problems=reader.beside(waiting_for),
    )


def preemption_delay(pod: Pod, defaults: GangDefaults) -> tuple[float, list[Problem]]:
    """Preemption delay of a plain pod, and the problems of its annotation (semantics V28)."""
    if not pod.gang_metadata:  # thousands of plain pods state nothing
        return defaults.preempt_delay_s, []

    reader = _SpecReader((pod,), None)
    return reader.preemption_delay(defaults), reader.problems


def _constraints(reader: _SpecReader, pod_group: PodGroup | None) -> PlacementConstraints:
    """The gang's requests to the GPU policy."""
    shared = reader.value(_SHARED_GPUS)
    product = reader.value(_GPU_PRODUCT)

    # What different dialects require holds together: a gang that asked for one rack must not start
    # in two.
    native = pod_group.topology if pod_group is not None else ()
    own = reader.value(_TOPOLOGY, spec=native or None) or ()
    kueue = reader.value(_KUEUE_TOPOLOGY)
    lws = reader.optional(_LWS_TOPOLOGY)
    jobset = reader.optional(_JOBSET_TOPOLOGY) if reader.has_exclusive_job else None
    topology = tuple(sorted({*own, *native, *filter(None, (kueue, lws, jobset))}))
    preferred = reader.value(_PREFERRED_TOPOLOGY) or ""
    slices = reader.value(_SLICES) or ()
    stated = PlacementConstraints(bool(shared), bool(product), topology, preferred, slices)

    return NO_CONSTRAINTS if stated == NO_CONSTRAINTS else stated


def _disruption_mode(pod_group: PodGroup | None) -> Disruption | None:
    """The disruption mode of a native PodGroup."""
    if pod_group is None or not (pod_group.indivisible or pod_group.disrupted_singly):
        return None
    if pod_group.indivisible:
        return Disruption.ALL

    return Disruption.SINGLE


def _waiting_for(
    gang: str,
    min_member: int | None,
    owner: OwnerDeclaration | None,
    *,
    missing: bool,
) -> str | None:
    if keys.is_too_long(gang):
        return f"the name of gang {_cut(gang)} is longer than {keys.LONGEST_VALUE} bytes"
    if missing:
        return f"PodGroup {_cut(gang)} does not exist"

    if min_member is None and owner is not None and owner.waits:
        return owner.waits

    if min_member is None:
        stated = f"set spec.minMember of its PodGroup, or {keys.MIN[0]} on its pods"
        return f"no valid minimum is given for gang {_cut(gang)}: {stated}"

    return None


def _tree_problem(gang: str, group: tuple[str, ...], parent: str) -> str | None:
    if parent == gang:
        return f"gang {_cut(gang)} names itself as its parent"
    if parent and len(group) > 1:
        return (
            f"gang {_cut(gang)} sets both {keys.PARENT[0]} and {keys.GROUPS[0]}: remove one of them"
        )

    return None


class _SpecReader:
    """Reads values one by one and notes the source of each and what is wrong with the others."""

    def __init__(
        self,
        declared: Sequence[Pod],
        pod_group: PodGroup | None,
        owner: OwnerDeclaration | None = None,
    ) -> None:
        # The oldest decides (I3), and by name and uid the same one after a restart.
        pods = sorted(declared, key=lambda pod: (pod.creation_s, pod.name, pod.uid))
        self._pods = [Origin(f"pod {pod.key}", pod.key, stated_by(pod)) for pod in pods]
        self._owner = owner
        where = f"PodGroup {_cut(pod_group.id)}" if pod_group else "PodGroup"
        declared_by = pod_group or owner
        self._of_group = Origin(
            owner.who if owner is not None else where,
            "",
            dict(declared_by.gang_metadata) if declared_by is not None else {},
        )
        self._min_resources = pod_group.min_resources if pod_group else ()
        self.sources: dict[str, str] = {}
        self.rare: dict[str, object] = {}
        self.problems = (
            [Problem("spec", "", "", text) for text in pod_group.problems] if pod_group else []
        )
        if owner is not None and owner.problem:
            self.problems.append(Problem("spec", "", "", owner.problem))

        #: All keys that any of the objects has. Most gangs state three or four of the thirty that
        #: are asked for.
        self._stated = frozenset(self._of_group.gang_metadata).union(
            *(pod.gang_metadata for pod in self._pods)
        )
        # the first text of each value, by its name, that is outside its grammar
        self._bad: dict[str, BadText] = {}

    @property
    def has_exclusive_job(self) -> bool:
        """Whether the gang is one Job of a JobSet with a domain of its own, which creates its other
        pods once the first has a node.
        """
        return (
            self._owner is not None
            and keys.JOBSET_EXCLUSIVE in self._stated
            and keys.JOBSET_NODE_SELECTOR not in self._stated
        )

    def value(
        self,
        asked: Value[T],
        *,
        spec: T | None = None,
        default: T | None = None,
        default_source: str = _DEFAULT,
    ) -> T | None:
        """The value of a key by the order of `gang_spec`; `spec` is the PodGroup's spec, after its
        annotations.
        """
        if spec is None and self._stated.isdisjoint(asked.keys):
            self.sources[asked.name] = default_source if default is not None else "none"
            return default

        read = [statement(origin, asked) for origin in self._pods]
        of_group, bad_of_group = statement(self._of_group, asked)
        if of_group is None and spec is not None:
            of_group = Statement(spec, f"spec.{asked.field}", "", self._spec_source(asked.field))

        stated = [statement for statement, _ in read]
        # The oldest pod, the PodGroup, then the other pods by age.
        winner = next(
            (
                candidate
                for candidate in (*stated[:1], of_group, *stated[1:])
                if candidate is not None
            ),
            None,
        )
        taken, source = (
            (default, default_source) if winner is None else (winner.value, winner.source)
        )
        self.sources[asked.name] = source if taken is not None else "none"
        used = "" if taken is None else f"{asked.show(taken)} ({source})"
        self._report(
            [*(bad for _, of_pod in read for bad in of_pod), *bad_of_group],
            used,
            name=asked.name,
        )

        others = [
            statement for statement in stated if statement is not None and statement.value != taken
        ]
        if others:
            self.problems.append(disagreement(others, used))

        return taken

    def _report(self, bad_texts: Sequence[BadText], used: str, *, name: str) -> None:
        # once, however many carry it
        for bad in {
            (bad_text.key, bad_text.text): bad_text for bad_text in reversed(bad_texts)
        }.values():
            where, pod, _ = bad.origin
            self._bad.setdefault(name, bad)
            self.problems.append(
                bad_value(key=bad.key, value=bad.text, why=bad.why, used=used, where=where, pod=pod)
            )

    def value_or(self, asked: Value[T], default: T, *, spec: T | None = None) -> T:
        """The value of a key as in `value`, or a default."""
        value = self.value(asked, spec=spec, default=default)
        assert value is not None
        return value

    def optional(self, asked: Value[T], *, spec: T | None = None) -> T | None:
        """The value of a key that few gangs have; no source is recorded for its default."""
        value = self.value(asked, spec=spec)
        if value is None:
            del self.sources[asked.name]
            return None

        self.rare[asked.name] = value
        return value

    def parent(self, gang: str, stated: str) -> str:
        """The id of the gang's parent, "" for none; `stated` is the parent's name in
        the PodGroup.
        """
        name = self.value(_PARENT, spec=stated or None)
        return f"{gang.partition('/')[0]}/{name}" if name else ""

    def beside(self, refusal: str | None) -> tuple[Problem, ...]:
        """The problems that the gang's `refusal` does not tell itself: while it waits because of
        a value, nothing is used instead.
        """
        text = refusal or ""
        return tuple(problem for problem in self.problems if not text.startswith(f"{problem.key} "))

    def misplaced(self, spec: GangSpec) -> str | None:
        """Why the gang must wait because of an invalid required topology, slices or tree; None if
        all are valid.

        A default in place of a typo could start the gang in two racks, which is worse than letting
        it wait.
        """
        for value in (
            _TOPOLOGY,
            _KUEUE_TOPOLOGY,
            _LWS_TOPOLOGY,
            _JOBSET_TOPOLOGY,
            _SLICES,
            _PARENT,
            _MIN_CHILDREN,
        ):
            if (bad := self._bad.get(value.name)) is not None:
                return (
                    f"{bad.key} of {bad.origin.where} {bad.why}. Correct or remove"
                    f" {quoted(bad.text)}"
                )

        for key in KUEUE_PLACES:
            if len({origin.gang_metadata.get(key) for origin in self._pods}) > 1:
                names = ", ".join(origin.pod for origin in self._pods[:PODS_NAMED])
                return (
                    f"{key} differs between {names}. It applies to the whole gang: set the same"
                    " value on all of its pods, or on none"
                )

        # The first layer is the coarsest, and each size divides the one before.
        largest = spec.constraints.slices[0].size if spec.constraints.slices else 0
        if largest > spec.total:
            stated = f"slices of {largest} pods ({self.sources[_SLICES.name]})"
            gang = f"gang {_cut(spec.id)} of {counted(spec.total, 'pod')}"
            return f"{stated} are larger than {gang}. Correct the slices, or {keys.TOTAL[0]}"

        return None

    def stated(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield each pod that was read, by name, with its keys."""
        return ((origin.pod, origin.gang_metadata) for origin in self._pods)

    def members_to_come(self, spec: GangSpec, pod_group: PodGroup | None) -> ToCome:
        """Whether members come only after others run."""
        leader_first = self.optional(_LEADER_FIRST) is True
        if leader_first and not any(keys.LWS_SIZE in stated for _, stated in self.stated()):
            source = self.sources.pop(_LEADER_FIRST.name)
            del self.rare[_LEADER_FIRST.name]
            (key,) = keys.LEADER_FIRST
            text = (
                f"{source} has no effect without {keys.LWS_SIZE}, which sets the number of workers."
            )
            self.problems.append(Problem(key, quoted("true"), "", text))

        return members_to_come(
            _cut(spec.id),
            [gang_metadata for _, gang_metadata in self.stated()],
            pod_group,
            min_member=spec.min_member,
            total=spec.total,
            min_resources=spec.min_resources,
            leader_first=leader_first,
            exclusive=_LWS_TOPOLOGY.name in self.sources,
            exclusive_job=self.has_exclusive_job,
            keeps_room=self.optional(_KEEP_ROOM) is True,
        )

    def once(self, spec: GangSpec) -> MatchPolicy:
        """The match policy; always once-satisfied with members to come, since these start after the
        gang.
        """
        policy = spec.match_policy
        used = MatchPolicy.ONCE_SATISFIED
        if policy is used or not spec.first:
            return policy

        text = (
            f"match policy {policy} cannot be combined with members to come, which start later."
            f" {instead(used)}"
        )
        self.problems.append(Problem(keys.MATCH_POLICY[0], quoted(policy.value), used.value, text))
        return used

    def strict(self, spec: GangSpec) -> Mode:
        """The mode; always Strict with slices, a parent or members to come, since such gangs are
        placed as a whole.
        """
        if spec.mode is Mode.STRICT or not (spec.constraints.slices or spec.parent or spec.first):
            return spec.mode

        if spec.constraints.slices:
            what = "slices"
            name = _SLICES.name
            because = "which are placed whole"
        elif spec.parent:
            what = "a parent"
            name = _PARENT.name
            because = "whose children are placed whole"
        else:
            what = "members to come"
            name = _MIN.name
            because = "which get room together with the first members"

        used = f"{Mode.STRICT} ({what})"
        source = self.sources[_MODE.name]
        text = (
            f"mode {spec.mode} ({source}) cannot be combined with {what}, {because}."
            f" {instead(used)}"
        )
        self.problems.append(Problem(keys.MODE[0], quoted(spec.mode.value), used, text))
        self.sources[_MODE.name] = name

        return Mode.STRICT

    def total(self, min_member: int | None) -> int:
        """Expected number of members, at least the minimum; only used in messages (I3)."""
        total = self.value(_TOTAL, default=min_member or 0, default_source=_MIN.name) or 0
        if min_member is None or total >= min_member:
            return total

        used = f"{min_member} (min)"
        source = self.sources[_TOTAL.name]
        text = f"total-number {total} ({source}) is below the gang's minimum. {instead(used)}"
        self.problems.append(Problem(keys.TOTAL[0], quoted(str(total)), used, text))
        self.sources[_TOTAL.name] = _MIN.name

        return min_member

    def wait_time(self, defaults: GangDefaults, spec_s: float | None) -> float:
        """How long the gang may hold room, in seconds: at most `hold_max_s` (T2)."""
        # The administrator's limit: a hold keeps room from everybody, however long its owner would
        # wait.
        wait_s = self.value_or(_WAIT_TIME, defaults.wait_time_s, spec=spec_s)
        most_s = defaults.hold_max_s
        if wait_s <= most_s:
            return wait_s

        most = _WAIT_TIME.show(most_s)
        used = f"{most} (hold_max_s)"
        shown = _WAIT_TIME.show(wait_s)
        source = self.sources[_WAIT_TIME.name]
        text = f"wait time {shown} ({source}) exceeds the maximum of {most}. {instead(used)}"
        self.problems.append(Problem(keys.WAIT_TIME[0], quoted(shown), used, text))

        return most_s

    def preemption_delay(self, defaults: GangDefaults) -> float:
        """Preemption delay of the gang: the longest of its members, else that of its PodGroup.

        At most one hour (V28).
        """
        read = [statement(origin, _PREEMPTION_DELAY) for origin in (*self._pods, self._of_group)]
        stated = [statement for statement, _ in read[:-1] if statement is not None]

        # Not the oldest pod's: each member says how long an autoscaler needs for its node (V28).
        longest = max(stated, key=lambda delay: delay.value, default=read[-1][0])
        delay_s = defaults.preempt_delay_s if longest is None else longest.value
        source = _DEFAULT if longest is None else longest.source
        used_s = min(delay_s, _PREEMPTION_DELAY_MAX_S)
        shown = _PREEMPTION_DELAY.show(delay_s)
        used = (
            f"{_PREEMPTION_DELAY.show(used_s)}"
            f" ({source if used_s == delay_s else 'the upper limit'})"
        )
        self._report(
            [bad for _, bad_texts in read for bad in bad_texts], used, name=_PREEMPTION_DELAY.name
        )

        if longest is not None and used_s < delay_s:
            most = _PREEMPTION_DELAY.show(used_s)
            exceeds = f"preemption delay {shown} ({source}) exceeds the maximum of {most}"
            text = f"{exceeds}. {instead(used)}"
            self.problems.append(
                Problem(longest.key, quoted(longest.text), used, text, longest.pod)
            )

        self.sources[_PREEMPTION_DELAY.name] = source
        return used_s

    def min_resources(self) -> ResourceVector:
        """The PodGroup's minResources."""
        self.sources["minResources"] = (
            self._spec_source("minResources") if self._min_resources else "none"
        )
        return self._min_resources

    def _spec_source(self, field: str) -> str:
        if self._owner is not None:
            return self._owner.who

        return f"spec.{field} of {self._of_group.where}"


def _cut(gang: str) -> str:
    return gang if len(gang) <= 320 else gang[:320] + "…"
