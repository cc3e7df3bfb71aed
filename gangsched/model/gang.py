"""Gangs and gang groups, as a plan sees them.

Invariant: a `Gang` is an immutable view of one gang's members and settings. A `Group` is a set of
gangs that are decided together: a gang without siblings is a group of one gang, and a plain pod is
a gang of one member. The state rebuilds both when something changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec import structs

from gangsched.model.gpu_policy import NO_CONSTRAINTS, PlacementConstraints
from gangsched.model.lazy_pods import TO_COME
from gangsched.model.objects import JointStart, Pod
from gangsched.model.reasons import LACKS_CAPACITY, Reason
from gangsched.model.resources import ResourceVector
from gangsched.model.storage import Selection
from gangsched.model.tree import Composite, Part, root_part, starts_in_parts
from gangsched.model.verdict_facts import Detail, Fact, OfAnotherNamespace, WaitsForSibling, subject

Rank: TypeAlias = tuple[int, int, int, int, str]
"""Where a group stands among all that wait (Q1, Q2); smaller goes first."""


REST_PRECEDENCE: Final = -(2**31)
"""Before every priority, which are numbers of 32 bits."""
ORDINARY_TURN: Final = 3
"""The turn of a group that has not started, or grows."""
PLAIN: Final = "pod:"
"""Begins the id of a plain pod, and of its group."""
TREE: Final = "tree:"
"""Begins the id of the group of all gangs of a tree (I9), which may be a gang's id without it."""
COMPOSITE_PREFIX: Final = "composite:"
"""Begins the names of CompositePodGroups as parts of trees, since a PodGroup may have the same
name.
"""


class Mode(StrEnum):
    """Whether a gang holds nodes for some members while others do not fit: NonStrict does, Strict
    does not (semantics R2, R3).
    """

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class Disruption(StrEnum):
    """Unit of eviction (semantics V6): the whole part (all), or each member of a gang by itself
    (single).

    If neither is declared, members above the minimum are evicted one by one, and the rest as a
    whole.
    """

    ALL = "all"
    SINGLE = "single"


class MatchPolicy(StrEnum):
    """Selects the members that Permit counts (semantics B1)."""

    ONCE_SATISFIED = "once-satisfied"
    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod and the node chosen for it; `claims` are the decisions about its unbound claims.

    A struct, since a plan makes thousands of them: a frozen dataclass takes ten times as long.
    """

    pod: Pod
    node: str
    claims: tuple[Selection, ...] = ()
    #: The home of its gang, which had no room, so that the node is outside of it (L3).
    outside: str = ""


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a pod or gang is not scheduled now: a reason, a fact, and what is to be added to it.

    `gangsched.sentences` words it. `never`: the pod or gang would not fit even if the nodes were
    empty. `of` is the namespace whose objects it names, "" for none.
    """

    reason: Reason
    fact: Fact
    details: tuple[Detail, ...] = ()
    never: bool = False
    of: str = ""

    def told_in(self, namespace: str) -> Refusal:
        """The refusal as it is told in a namespace, which learns no name of another one (semantics
        I4).
        """
        if self.of in {"", namespace}:
            return self

        return Refusal(self.reason, OfAnotherNamespace())

    def of_gang(self, gang: str) -> Refusal:
        """The refusal of a group as that of one of its gangs: another gang's is a sibling's
        (semantics E6).
        """
        other = subject(self.fact)
        if other in {"", gang}:
            return self

        # Room for the sibling is room for this gang, too: autoscalers look at the pods of both.
        reason = self.reason
        if reason not in LACKS_CAPACITY:
            reason = Reason.WAITING_FOR_GANG

        fact = WaitsForSibling(other, structs.replace(self, details=()))
        return structs.replace(self, reason=reason, fact=fact)

    def is_of_a_sibling(self) -> bool:
        """Whether another gang of the group is what the gang waits for."""
        return isinstance(self.fact, WaitsForSibling)


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """One gang. All counts are of live members."""

    id: str
    min_member: int = 1
    total: int = 1
    mode: Mode = Mode.STRICT
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    wait_time_s: float = 600.0
    min_resources: ResourceVector = ()
    #: Unbound, ungated, not terminating and not held, with a scheduler name of gangsched; in
    #: placing order (Q5).
    pending: Sequence[Pod] = ()
    #: Members that passed Permit and whose bind failed (B3): they are placed like plain pods,
    #: whatever the match policy.
    retry: tuple[Pod, ...] = ()
    #: Beyond the minimums of their tasks, so they are pending only while no task lacks a member.
    later: tuple[Pod, ...] = ()
    #: Members that tasks of a gang that has started are below their minimums.
    lacks_of_tasks: int = 0
    #: The `retry` members that still have their room.
    kept: tuple[Placement, ...] = ()
    held: tuple[Placement, ...] = ()
    #: Members that keep the room of a start of which no bind of this gang succeeded: they are
    #: placed with its others once their back-off is over (B3).
    refused: tuple[Placement, ...] = ()
    #: Members that have room and wait for their claims. Not those whose claims are being written.
    unbound: tuple[Placement, ...] = ()
    #: Members that are bound or being bound and not terminating; `nodes` are the nodes of bound
    #: ones.
    bound: int = 0
    nodes: tuple[str, ...] = ()
    #: The nodes of those with accelerators, if they must have one GPU product.
    accelerated_nodes: tuple[str, ...] = ()
    gated: int = 0
    terminating: int = 0
    foreign: tuple[str, ...] = ()
    #: Counts only as P1 says.
    succeeded: int = 0
    timed_out: tuple[str, ...] = ()
    satisfied: bool = False
    #: The minimum of the Permit that a satisfied gang passed (B4).
    permitted_min: int = 0
    #: The start of several members that it was part of, by a proven stamp (B4).
    together: JointStart | None = None
    #: Number of members that its last start needs and that were never bound, as far as is known
    #: (B3).
    unsent: int = 0
    #: The start of several members of which it lacked nobody, though some may be lost since.
    sent_with: JointStart | None = None
    #: The waiting members replace lost ones (Q2).
    replaces: bool = False
    #: It is a single pod without a gang.
    plain: bool = False
    constraints: PlacementConstraints = NO_CONSTRAINTS
    #: Its members are evicted all together; those of a `disrupted_singly` gang one by one (V6).
    indivisible: bool = False
    disrupted_singly: bool = False
    #: It preempts no pods (V2); any other gang preempts only after `preemption_delay_s` (V28).
    never_preempts: bool = False
    #: Why it has no valid settings yet.
    uninitialised: Refusal | None = None
    #: The longest run time of a member, `math.inf` if unknown (H1).
    run_time_s: float = math.inf
    #: The pod annotation that overrides the PodGroup's minimum, or the minimums of tasks that it
    #: consists of.
    min_note: str = ""
    preemption_delay_s: float = 0.0
    #: Slices are formed by `Pod.index`.
    indexed: bool = False
    #: Index and node of each member that has a node.
    standing: tuple[tuple[int, str], ...] = ()
    #: Until the gang has started: stand-ins for members that are created after others run (B8). The
    #: view of a group has them among `pending` (`with_all`).
    to_come: Sequence[Pod] = ()
    #: After the start: the stand-ins that still have room.
    promised: tuple[Placement, ...] = ()

    @property
    def least(self) -> int:
        """Number of members that need room for a start; if members are still to come, this is all
        of them.
        """
        # A start without room for all of them would leave a leader that waits beside what runs
        # (B8).
        return self.total if self.to_come else self.min_member

    @property
    def free_running(self) -> bool:
        """Whether members are scheduled as plain pods (semantics P3)."""
        return self.plain or (self.satisfied and self.match_policy is MatchPolicy.ONCE_SATISFIED)

    @property
    def unhindered(self) -> tuple[Pod, ...]:
        """Members that may start before the other members have nodes (semantics P3, B3)."""
        return (*self.retry, *(self.pending if self.free_running else ()))

    @property
    def lacks(self) -> int:
        """Number of members that a gang that has started is below its minimum: that of its Permit,
        or the current one if that is smaller (semantics B5). What has not started lacks nothing.
        """
        if self.plain or not self.satisfied:
            return 0

        of_all = min(self.permitted_min, self.min_member) - self.bound - self.succeeded
        return max(0, of_all, self.lacks_of_tasks)

    @property
    def has(self) -> int:
        """Number of members that a gang that has started has of its minimum, and above it; members
        of one task do not stand in for those of another.
        """
        if self.lacks_of_tasks:
            return min(self.permitted_min, self.min_member) - self.lacks

        return self.bound + self.succeeded

    @property
    def waiting(self) -> bool:
        """Whether any member waits for a node or for a retry of its bind."""
        return bool(self.pending or self.retry or self.later or self.kept or self.held)

    @property
    def quorum(self) -> int:
        """Number of members that rule P1 compares with `min_member`."""
        # Before its first start, pods that have succeeded are leftovers of another job (P1).
        done = self.succeeded if self.free_running else 0
        waiting = len(self.pending) + len(self.retry) + len(self.kept) + len(self.held)
        return waiting + self.bound + done

    @property
    def yieldable(self) -> tuple[Placement, ...]:
        """The room of its members that the gang can do without, as far as it knows."""
        return (*self.held, *self.refused, *self.unbound)

    @property
    def unsent_pods(self) -> tuple[Pod, ...]:
        """The members that its start may have been sent without: those that wait for their claims
        are part of it.
        """
        with_room = (placement.pod for placement in (*self.kept, *self.refused))
        return (*self.pending, *with_room)

    def counted(self, placed: int) -> int:
        """Number of members that Permit counts once `placed` of the pending ones have a node
        (semantics B1).
        """
        ready = placed + len(self.held)
        if self.match_policy is MatchPolicy.ONLY_WAITING:
            return ready

        return ready + self.bound


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Gangs that are decided together, sorted by id. All start together; the gangs of a `tree`
    start in parts (I9).
    """

    id: str
    gangs: tuple[Gang, ...]
    priority: int = 0
    creation_s: int = 0
    broken: bool = False
    #: The gangs that a start was sent without, though it needs them (B3).
    rest: frozenset[str] = frozenset()
    #: Required domains leave its `rest` only some nodes.
    pinned: bool = False
    #: An error in the group's declaration (I4).
    refusal: Refusal | None = None
    #: Monotonic second of its first hold (T1), None without holds.
    clock_started_s: float | None = None
    #: The group that it yielded to (D1).
    yielded_to: str = ""
    #: Nodes that it avoids: the kubelet recently rejected a member (B6), or members died there.
    avoid: frozenset[str] = frozenset()
    #: Those of them on which members died, in the order in which they are opened if nothing else
    #: has room (L8).
    struck: tuple[str, ...] = ()
    #: Changes with every change of the group; `rounds` counts its rounds.
    generation: int = 0
    rounds: int = 0
    #: It has holds, and nothing that its last verdict depends on has changed: it is not decided
    #: again, but may yield (D1).
    unchanged: bool = False
    #: The parts that its objects declare (I9); None if all of its gangs start together. Whoever
    #: asks for its parts asks for its `root`.
    tree: Composite | None = None
    #: Labels that hold for the whole group, in addition to those of its gangs.
    topology: tuple[str, ...] = ()
    #: Parts that each have domains of their own; all of their gangs are needed.
    apart: tuple[Part, ...] = ()
    #: For a part of a tree, by composite around it: the labels for which one domain must hold the
    #: composite, and the nodes of its other members.
    beside: tuple[tuple[tuple[str, ...], frozenset[str]], ...] = ()
    #: For gangs of which no member is left: in the same form the homes of what is left of their
    #: group, the closest first. They are tried there before anywhere else (L3).
    near: tuple[tuple[tuple[str, ...], frozenset[str]], ...] = ()
    #: For a tree: the group of the gangs that its minimum needs, if it is known already.
    minimum: Group | None = None
    # Derived from the gangs whenever a group is made, since a plan asks about five times for each;
    # what is given for them does not matter.
    #: A gang of the group is Strict (semantics R3).
    strict: bool = False
    #: All of its gangs may use GPUs that pods share: plain pods go where kube-scheduler would put
    #: them.
    shares_gpus: bool = True
    #: As `model.tree.starts_in_parts` says of its root.
    starts_in_parts: bool = False

    def __post_init__(self) -> None:
        strict = False
        sharing = True
        for gang in self.gangs:
            strict = strict or gang.mode is Mode.STRICT
            sharing = sharing and (gang.plain or gang.constraints.allow_shared)

        structs.force_setattr(self, "strict", strict)
        structs.force_setattr(self, "shares_gpus", sharing)
        in_parts = self.tree is not None and starts_in_parts(self.tree)
        structs.force_setattr(self, "starts_in_parts", in_parts)

    @property
    def root(self) -> Part:
        """Its outermost part; of a single gang, the gang."""
        return root_part([gang.id for gang in self.gangs], self.tree)

    @property
    def namespaces(self) -> frozenset[str]:
        """Namespaces of its gangs. If there is only one, messages to the group may name objects of
        that namespace.
        """
        return frozenset(namespace_of(gang.id) for gang in self.gangs)

    def is_of(self, key: str) -> bool:
        """Whether all gangs of the group are in the namespace of the object or group `key`; if so,
        messages to the group may name it.
        """
        # A group of two namespaces is told numbers instead: each message goes to all of its gangs.
        return self.namespaces == {namespace_of(key)}

    @property
    def order(self) -> tuple[int, int, int]:
        """What ranks the group before its age, smaller goes first (Q1, Q2, L10): its priority, its
        turn within that, and since when it is broken.

        The rest of a start goes before all priorities: who takes the room that it lacks makes half
        a group of what runs. A higher priority may evict the group as a whole.
        """
        # Nearly all of thousands that wait, of each of which it is asked again and again.
        if not self.rest and not self.broken:
            return (-self.priority, ORDINARY_TURN, 0)

        precedence = REST_PRECEDENCE if self.rest else -self.priority
        return (precedence, self.turn, self.broken_since_s)

    @property
    def turn(self) -> int:
        """Among groups of equal priority, smaller goes first (Q2): the rest of a start, then what
        is broken otherwise.

        A rest that may go anywhere comes after one that has to be in the domain of what has
        started.
        """
        if self.rest:
            return 0 if self.pinned else 1

        return 2 if self.broken else ORDINARY_TURN

    @property
    def broken_since_s(self) -> int:
        """Among broken groups, the one that is broken for longest goes first (L10): the creation of
        its oldest waiting member; 0 for any other group.
        """
        if not self.broken or self.rest:
            return 0

        waiting: list[Pod] = []
        for gang in self.gangs:
            waiting += gang.retry
            waiting += gang.pending

        return min([pod.creation_s for pod in waiting], default=0)

    @property
    def lowest_priority(self) -> int:
        """Lowest priority of its members. Nominations of this priority or higher reserve room that
        the group cannot use (semantics F1).
        """
        placed = (placement.pod for placement in self.unbound_room)
        pods = (*placed, *(pod for gang in self.gangs for pod in (*gang.pending, *gang.retry)))
        return min((pod.priority for pod in pods), default=self.priority)

    @property
    def waits(self) -> bool:
        """Whether any member waits."""
        return any(gang.waiting for gang in self.gangs)

    @property
    def holds(self) -> bool:
        """Whether any member is held."""
        return any(gang.held for gang in self.gangs)

    @property
    def unbound_room(self) -> tuple[Placement, ...]:
        """Room of members of which none runs there: groups of higher priority take it before they
        evict anybody (D1, V6).
        """
        placements: list[Placement] = []
        for gang in self.gangs:
            placements += gang.kept
            placements += gang.yieldable

        return tuple(placements)

    @property
    def yieldable(self) -> tuple[Placement, ...]:
        """The room that the group may yield: nothing that is left of a start, and not that of
        refused binds of a gang that has started, which is kept for half a minute at most (B3).
        """
        if self.rest:
            return ()

        placements: list[Placement] = []
        for gang in self.gangs:
            placements += gang.yieldable

        return tuple(placements)

    @property
    def run_time_s(self) -> float:
        """Expected run time: the maximum over its gangs (H1)."""
        return max([gang.run_time_s for gang in self.gangs])

    @property
    def preemption_delay_s(self) -> float:
        """Delay before the group preempts: the maximum over its gangs (V28)."""
        return max([gang.preemption_delay_s for gang in self.gangs])

    @property
    def wait_time_s(self) -> float:
        """Wait time: the minimum over its gangs, since the group times out as a whole (semantics
        T1).
        """
        return min(gang.wait_time_s for gang in self.gangs)


def namespace_of(key: str) -> str:
    """Namespace in the id of a gang or group."""
    # Ids of plain pods and trees have a prefix that no namespace can have, as it contains a colon.
    return key.removeprefix(PLAIN).removeprefix(TREE).partition("/")[0]


def is_to_come(uid: str) -> bool:
    """Whether `uid` identifies a stand-in for a member to come."""
    return uid.startswith(TO_COME)


def room_key(gang: str) -> str:
    """The key under which room for members to come is promised: for the gang alone, not for its
    group.
    """
    return f"{TO_COME}{gang}"


def gang_to_come(uid: str) -> str:
    """The gang of the member to come with this stand-in `uid`; "" for any other uid."""
    if is_to_come(uid):
        return uid.removeprefix(TO_COME).rpartition("#")[0]

    return ""


def shown(group_id: str) -> str:
    """The name of a group, or of a part of a tree, as shown to users: `ml/a`, `pod ml/p`,
    `composite ml/svc`.
    """
    part = group_id.removeprefix(TREE)
    if is_composite_object(part):
        return f"composite {part.replace(COMPOSITE_PREFIX, '', 1)}"

    return part.replace(PLAIN, "pod ", 1)


def is_composite_object(part: str) -> bool:
    """Whether the id of a part of a tree says that a CompositePodGroup declares it."""
    return part.partition("/")[2].startswith(COMPOSITE_PREFIX)
