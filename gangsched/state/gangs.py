"""The record of one gang between plans: its members and its specification.

Invariant: a record only stores; `gang_view` builds what a plan sees. Members are identified by uid,
so a recreated pod with the same name is another member (semantics I6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gangsched.api import keys
from gangsched.api.gang_identity import gang_id
from gangsched.api.gang_spec import GangDefaults, GangSpec, gang_spec, preemption_delay
from gangsched.api.owner_declarations import OwnerDeclaration
from gangsched.api.problem import Problem
from gangsched.api.run_time import UNKNOWN, RunTime, enforced, longest, run_time
from gangsched.model.gang import MatchPolicy, namespace_of
from gangsched.model.objects import (
    TERMINAL,
    JointStart,
    PermitStamp,
    Pod,
    PodGroup,
    PromisedRoom,
    Shape,
)
from gangsched.state.members import STARTED, Member, State
from gangsched.state.reporting.authorship import is_reported
from gangsched.state.reporting.reported import Reported
from gangsched.state.roster import Roster
from gangsched.state.start_memory import StartMemory
from gangsched.state.strikes import Ending

WAITING = (State.GATED, State.PENDING, State.HELD, State.KEPT, State.RETRY)
"""The states of members that wait to be placed or bound."""


@dataclass(slots=True)
class GangWait:
    """For metrics: when a gang got its quorum, how many rounds its group had before, and how many
    binds its minimum lacks.
    """

    since_s: float
    rounds: int
    lacks: int
    bound: int = 0


@dataclass(slots=True, kw_only=True)
class GangRecord:
    """The record of one gang."""

    id: str
    plain: bool = False
    #: By uid.
    members: dict[str, Member] = field(default_factory=dict)
    #: Current and former places of members.
    roster: Roster = field(default_factory=Roster)
    #: What is remembered of its last start (I6).
    start: StartMemory = field(default_factory=StartMemory)
    #: The last start with other gangs of which all needed members were bound (B3).
    complete_start: JointStart | None = None
    #: Only pods of another run wait, for a start of their own, beside the last start (I6).
    begins_beside: bool = False
    pod_groups: dict[str, PodGroup] = field(default_factory=dict)
    #: What its owner declares, if the gang is the pods of one owner (O2).
    owner: OwnerDeclaration | None = None
    spec: GangSpec | None = None
    #: The input that `spec` was derived from.
    spec_of: object = None
    #: Run time of the longest member (H1), derived from `run_time_of`.
    run_time: RunTime = UNKNOWN
    run_time_of: object = None
    #: The part of the run time that counts (H11).
    counted_s: float = UNKNOWN.seconds
    #: Preemption delay of a plain pod (V28); that of a gang is in its spec.
    delay_s: float = 0.0
    #: API groups in which its members say that its PodGroup is; the first that has one counts.
    api_groups: tuple[str, ...] = (keys.X_K8S, keys.SIGS)
    #: gangsched schedules a member, or scheduled the last one. Other gangs are not reported.
    ours: bool = False
    #: Message after the gang was evicted whole, until it starts again (V22).
    preempted: str = ""
    #: That the gang and another one wait for each other's room; "" if they do not (D2).
    deadlock: str = ""
    #: Times that the gang was evicted whole.
    preemptions: int = 0
    #: Why slices are not made by index, though members have some.
    index_problem: Problem | None = None
    #: It had members at the last refresh: no gang may name it as its parent (I9).
    has_pods: bool = False
    #: While it waits with a quorum.
    wait: GangWait | None = None
    #: The last run, by the epoch of its Permit, that was reported as longer than declared (H11).
    told_run: int | None = None
    #: Promised room of members to come whose promise has ended (B8), and nodes on which it was
    #: lost.
    room_over: PromisedRoom | None = None
    room_lost: frozenset[str] = frozenset()
    #: Why no room is kept for members to come.
    room_problem: Problem | None = None
    #: What a worker of another group of its LeaderWorkerSet asks for.
    worker: Shape | None = None
    #: How its members ended recently; None if it does not avoid bad nodes (L8).
    endings: tuple[Ending, ...] | None = None
    #: Stamps count as proven: it is not known yet whether a policy guards them.
    trusts_stamps: bool = False
    _shape_to_come: tuple[object, Shape] | None = None
    _reported: Reported | None = None

    @property
    def reported(self) -> Reported:
        """The last reports about the gang; created on first use, because most plain pods are never
        reported on.
        """
        if self._reported is None:
            self._reported = Reported()

        return self._reported

    @property
    def empty(self) -> bool:
        """Whether the record can be dropped (semantics I6)."""
        if self.owner is not None and self.owner.is_tree:
            return False

        return not self.members and all(
            pod_group.is_of_pods for pod_group in self.pod_groups.values()
        )

    @property
    def namespace(self) -> str:
        """Namespace of its pods."""
        return namespace_of(self.id)

    @property
    def name(self) -> str:
        """Its name, which another process knows it by, too, where two owners have one name and ids
        differ (O2).
        """
        if self.owner is not None:
            return self.owner.gang_name

        return self.id.partition("/")[2]

    @property
    def pod_group(self) -> PodGroup | None:
        """The PodGroup of the gang, in an API group that its members name (I2).

        Other API groups may have an unrelated PodGroup with the same name. A PodGroup without
        members may be the parent of gangs, in any API group (I9).
        """
        if not self.pod_groups:
            return None

        # Sorted: of two objects with the same name the choice must not depend on which list came
        # first.
        groups = self.api_groups if self.members else (*self.api_groups, *sorted(self.pod_groups))
        return next((self.pod_groups[group] for group in groups if group in self.pod_groups), None)

    @property
    def creation_s(self) -> int:
        """Creation of the PodGroup, else of the oldest member, in epoch seconds (semantics Q1)."""
        if (pod_group := self.pod_group) is not None:
            return pod_group.creation_s

        # The oldest: a replacement must not put its gang at the end of the queue.
        return min((member.pod.creation_s for member in self.members.values()), default=0)

    @property
    def pods(self) -> list[Pod]:
        """Pods of all members, in the order in which they were first seen."""
        return [member.pod for member in self.members.values()]

    @property
    def faults(self) -> list[str]:
        """Failures of members' binds since the last verdict."""
        return [member.fault for member in self.members.values() if member.fault]

    def of(self, *states: State) -> list[Member]:
        """Members in any of these states."""
        return [member for member in self.members.values() if member.state in states]

    def by_state(self) -> Counter[State]:
        """How many members are in each state; of those that none is in, nothing."""
        return Counter([member.state for member in self.members.values()])

    def oldest(self) -> Pod | None:
        """The member that was created first, among equals the first by name; None without members.
        Events are about it if there is no PodGroup (E2).
        """
        return min(self.pods, key=lambda pod: (pod.creation_s, pod.name, pod.uid), default=None)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Invalid values on its pods and its PodGroup (semantics E4)."""
        own = (each for each in (self.index_problem, self.room_problem) if each is not None)
        return (
            *(self.spec.problems if self.spec is not None else ()),
            *self.run_time.problems,
            *own,
        )

    @property
    def stated_run_time(self) -> str | None:
        """The run time that its PodGroup declares for the members; None if it declares none
        (semantics H1).
        """
        pod_group = self.pod_group
        if pod_group is None:
            return None

        return dict(pod_group.gang_metadata).get(keys.EXPECTED_RUNTIME)

    @property
    def permit(self) -> PermitStamp | None:
        """The Permit that the gang has passed: the newest stamp of its bound or binding members
        (B4, I6).

        Without such a stamp: the stamp of a start that continues after its first members have
        succeeded, else None. Of pods that start beside it, the stamp of theirs.
        """
        if self.begins_beside:
            return newest(self.of_start(self.of(*STARTED)))

        return newest(self.of(*STARTED)) or self.continued()

    @property
    def passed(self) -> PermitStamp | None:
        """The Permit that the gang has passed, including a start that still waits for claims
        (semantics B7).
        """
        if (permit := self.permit) is not None:
            return permit

        waits = (
            member.wait.permit
            for member in self.of(State.WAITING_FOR_CLAIMS)
            if member.wait is not None
        )
        return max(
            (stamp for stamp in waits if stamp is not None),
            key=lambda stamp: stamp.epoch,
            default=None,
        )

    @property
    def minimum_binds(self) -> bool:
        """Whether its members must start together (semantics P3)."""
        is_once = self.spec is None or self.spec.match_policy is MatchPolicy.ONCE_SATISFIED
        return not self.plain and not (is_once and self.permit is not None)

    def continued(self) -> PermitStamp | None:
        """Stamp of a start that goes on although none of its members is left: one has succeeded,
        and its controllers create the others (semantics I6).

        The controller's uid distinguishes a Job from another with the same name, whose pods start
        as a whole.
        """
        if self.spec is not None and self.spec.match_policy is MatchPolicy.ONLY_WAITING:
            return None

        # If all have failed, the job restarts as a whole.
        start = self.start
        if not start.goes_on:
            return None

        # Without a waiting member nothing continues, and the next pod begins a start of its own.
        waiting = self.of(*WAITING)
        if waiting and all(member.pod.controller_uid in start.controllers for member in waiting):
            return start.stamp

        return None

    @property
    def unsent(self) -> int:
        """Number of members that the last start needs and of which nobody was ever bound, as far as
        is known (semantics B3).
        """
        # The roster forgets at a restart who was lost before it; the status of a PodGroup does not.
        unsent = self.roster.unsent
        stamp = self.start.stamp
        if stamp is None or not unsent:
            return unsent

        return min(unsent, max(0, stamp.min_member - self.start.bound))

    @property
    def started(self) -> int:
        """Members that Permit let through, or that have succeeded since; 0 while the gang has not
        passed Permit.
        """
        if not self.plain and self.passed is None:
            return 0

        return len(self.of(*STARTED)) + self.succeeded

    @property
    def succeeded(self) -> int:
        """Members of the last start that have succeeded and count towards the minimum, which an
        owner may have lowered for them already (O4).
        """
        owner = self.owner
        if owner is None or self.spec is None or not self.spec.is_minimum_of_owner:
            return self.start.succeeded

        # A pod is seen to succeed before its Job counts it: until then it counts here.
        return max(0, self.start.succeeded - owner.succeeded)

    @property
    def least(self) -> int:
        """Number of members with which the gang is whole.

        As in B5, raising the minimum after the Permit does not delay the start.
        """
        if self.plain:
            return 1

        permit = self.passed
        spec = self.spec
        stated = (permit and permit.min_member, spec.min_member if spec is not None else None)

        return min((each for each in stated if each is not None), default=0)

    @property
    def running(self) -> int:
        """Bound members that count towards the minimum, whoever bound them; none if `only-waiting`
        ones do (B1).
        """
        is_only_waiting = (
            self.spec is not None and self.spec.match_policy is MatchPolicy.ONLY_WAITING
        )
        return 0 if is_only_waiting else len(self.of_start(self.of(State.BOUND)))

    def of_start(self, members: Iterable[Member]) -> list[Member]:
        """Those of these members that count for the start that has passed, or is to pass, Permit:
        not those of an earlier run that lives on beside it.
        """
        if self.begins_beside:
            least = self.start.epoch + 1
        else:
            permit = self.passed
            least = permit.epoch if permit is not None else 0

        return [
            member for member in members if member.permit is None or member.permit.epoch >= least
        ]

    def stamp(self) -> PermitStamp:
        """The stamp for a member's bind: that of the Permit passed, or the next one (semantics B4).

        Its minimum is the number of members that the Permit needs, without members to come (B8).
        """
        if (permit := self.passed) is not None:
            # Room is promised once, with the Permit: a member that comes later must not renew the
            # promise.
            return permit._replace(room=None)

        # Ended members count here: a number that was used must not be used again, or two starts
        # would look like one.
        before = newest(self.members.values())
        last = max(self.start.epoch, before.epoch if before is not None else 0)
        spec = self.spec
        least = (spec.first or spec.min_member or 0) if spec is not None else 0

        return PermitStamp(least, last + 1)

    def shape_to_come(self, key: object, make: Callable[[], Shape]) -> Shape:
        """The shape of members to come; the same object while `key` is the same, since shapes are
        compared by identity.
        """
        if self._shape_to_come is None or self._shape_to_come[0] != key:
            self._shape_to_come = key, make()

        return self._shape_to_come[1]

    def note_whose(self, names: frozenset[str]) -> None:
        """Update whether a member has one of gangsched's scheduler `names`; without members the
        last result stays (semantics I1), also that of an earlier process.
        """
        # A PodGroup whose pods are gone stays ours to report, or nobody's, as it was with the last
        # of them.
        if self.members:
            self.ours = any(member.pod.scheduler_name in names for member in self.members.values())
        elif not self.ours and (pod_group := self.pod_group) is not None:
            self.ours = is_reported(pod_group)

    def read_spec(self, *, defaults: GangDefaults) -> bool:
        """Update `spec`; return whether it changed."""
        asked = self._asked()
        mark = gang_id(asked[0]) if asked and self.owner is None else None
        if self.owner is not None:
            self.api_groups = ()
        elif mark is not None:  # else the gang stays what its last members were
            also = any(f"{pod.namespace}/{pod.native_group}" == self.id for pod in asked)
            self.api_groups = tuple(
                dict.fromkeys((*mark.api_groups, *((keys.NATIVE,) if also else ())))
            )

        pod_group = self.pod_group
        # All that a declaration is read from. Reading it costs far more than comparing this, and
        # pods change all the time.
        stated = tuple((pod.uid, pod.gang_metadata, pod.shape.node_selector) for pod in asked)

        spec_of = (
            stated,
            pod_group.declaration if pod_group is not None else None,
            self.owner,
        )
        if spec_of == self.spec_of:
            return False

        needs_pod_group = self.owner is None and (mark is None or mark.needs_pod_group)
        spec = gang_spec(
            self.id,
            asked,
            pod_group,
            needs_pod_group=needs_pod_group,
            defaults=defaults,
            owner=self.owner,
        )
        # A tree has the words of the owner that declares it.
        says = self.owner is not None and self.owner.is_tree
        changed = spec != self.spec or says
        self.spec = spec

        # Last: what could not be read is not known, and is read again (I10).
        self.spec_of = spec_of
        return changed

    def read_run_time(self, default_s: float | None, *, ignored: bool = False) -> None:
        """Update `run_time` (semantics H1). If declarations are `ignored`, only deadlines count
        (H11).
        """
        of_group = self.stated_run_time
        pods = self._living()

        run_time_of = (
            frozenset(pod.run_time_metadata for pod in pods),
            of_group,
            default_s,
            ignored,
        )
        if run_time_of == self.run_time_of:
            return

        # A thousand equal pods are one declaration; a problem is reported of the oldest of them.
        oldest: dict[keys.GangMetadata, Pod] = {}
        for pod in sorted(pods, key=lambda pod: (pod.creation_s, pod.name, pod.uid)):
            oldest.setdefault(pod.run_time_metadata, pod)

        self.run_time = longest(
            run_time(
                stated,
                of_group,
                default_s=default_s,
                where=f"pod {pod.key}",
                group=f"PodGroup {self.id}",
            )
            for stated, pod in oldest.items()
        )
        # The reported value stays what was declared, also while the namespace's declarations do not
        # count (H11).
        self.counted_s = self.run_time.seconds

        if ignored:
            self.counted_s = longest(
                run_time(enforced(stated), default_s=default_s) for stated in oldest
            ).seconds

        self.run_time_of = run_time_of

    def read_delay(self, defaults: GangDefaults) -> None:
        """Update `delay_s` of a plain pod (V28)."""
        self.delay_s = max((preemption_delay(pod, defaults)[0] for pod in self.pods), default=0.0)

    def _living(self) -> list[Pod]:
        """The pods of members that neither have ended nor are going; of all, where there are no
        others.
        """
        pods = self.pods
        return [pod for pod in pods if not (pod.deleting or pod.phase in TERMINAL)] or pods

    def _asked(self) -> tuple[Pod, ...]:
        """The oldest pod of each distinct declaration, by age.

        Members that have ended or are going are asked only where there are no others: a gang that
        has finished is still what they declared, and its siblings' (I4).
        """
        declared: dict[tuple[tuple[str, str], ...], Pod] = {}
        known: Pod | None = None

        for pod in self._living():
            # equal metadata is mostly one object
            if known is None or pod.gang_metadata is not known.gang_metadata:
                known = declared.get(pod.gang_metadata)

            if known is None or (pod.creation_s, pod.name) < (known.creation_s, known.name):
                known = declared[pod.gang_metadata] = pod

        return tuple(sorted(declared.values(), key=lambda pod: (pod.creation_s, pod.name, pod.uid)))


def newest(members: Iterable[Member]) -> PermitStamp | None:
    """The stamp of the latest Permit among these members (semantics B4)."""
    newest_stamp: PermitStamp | None = None
    for member in members:
        stamp = member.permit
        # All members of a start have one and the same.
        if stamp is None or stamp is newest_stamp:
            continue
        if newest_stamp is None or stamp.epoch > newest_stamp.epoch:
            newest_stamp = stamp

    return newest_stamp
