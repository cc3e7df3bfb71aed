"""Gangs, and the groups in which they are decided.

Invariant: every gang is in exactly one group; a declared group exists only while all its gangs list
the same set (semantics I4); until then each gang is a group of its own that is refused. The gangs
of a tree form one group (I9). Only `refresh` rebuilds what changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import count, islice, takewhile
from math import inf

from msgspec import structs

from gangsched.api import keys
from gangsched.api.gang_spec import GangSpec
from gangsched.core import tree_choices
from gangsched.core.stand_ins import with_all
from gangsched.model.fault import UNKNOWN_REFERENCE, not_planned
from gangsched.model.gang import TREE, Gang, Group, Refusal, namespace_of, room_key
from gangsched.model.objects import JointStart, Pod
from gangsched.model.parts import Root
from gangsched.model.reasons import Reason
from gangsched.model.text import named
from gangsched.model.tree import Composite, composites_of, gangs_of
from gangsched.model.verdict_facts import SetAsideByOrder, Worded
from gangsched.state.avoided import not_over, struck
from gangsched.state.broken_groups import complete_starts, heals, is_pinned, rest_of_start
from gangsched.state.changed_gangs import ChangedGangs
from gangsched.state.companions import Companions
from gangsched.state.definitions import Definitions
from gangsched.state.gang_view import gang_view, stand_in_view
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import Former, GroupRecord, Refreshed
from gangsched.state.members_to_come import SiblingWorkers
from gangsched.state.parents import Parents
from gangsched.state.podgroup_names import PodGroupNames
from gangsched.state.rule_set import Rules

POD_GROUP_WAIT_S = 1.0
"""How long a gang waits for its PodGroup before it is told that there is none (semantics I2). The
API server may have created the PodGroup before the pod: they come by two watches, and no order
holds between them."""
MISSED_AT_A_TIME = 1_000
"""Gangs that wait no more for their PodGroup after one refresh: one user may have named thousands
in the same second. They are read in turns.
"""
AT_A_TIME = 150
"""Gangs that are grouped anew in one refresh only because one changed that they name and are not
decided with.
"""
GROUPED_AT_A_TIME = 300
LOOKED_AT_A_TIME = 10_000
"""After so many gangs that are grouped anew, or parts of trees that were looked through for them,
one refresh reads no more gangs for which the next plan does not wait: a new one may list 32 others
or be a child of any tree, also of one that is refused because it has thousands.
"""
MOST_ACCUSERS = 16
"""Gangs that list another one of which it is told that they do."""
UNUSED_ROOM_EVERY_S = 60
"""How often the age of a namespace's groups may begin again."""


class Registry:
    """All gangs and groups."""

    def __init__(
        self,
        rules: Rules,
        fixes_node: Callable[[Pod], bool] = lambda _: False,
    ) -> None:
        """`fixes_node` says whether the claims of a pod are of some nodes only."""
        self._fixes_node = fixes_node
        self.gangs: dict[str, GangRecord] = {}
        self.groups: dict[str, GroupRecord] = {}
        self.group_of: dict[str, str] = {}
        self.pod_group_names = PodGroupNames()
        self.definitions = Definitions()
        self._names = rules.scheduler_names
        self.defaults = rules.defaults
        self.policy = rules.policy
        self._workers = SiblingWorkers()
        self.trusts_stamps = True  # until it is known whether a policy guards them (B8)
        self._views: dict[str, Gang] = {}
        self._ignored: frozenset[str] = frozenset()
        self._set_aside: frozenset[str] = frozenset()

        #: By namespace: when room for members to come was last released without them, in epoch
        #: seconds.
        self._unused_room_s: dict[str, int] = {}
        #: By gang or group id: what was raised while it was read, until `take_faults`.
        self._faults: dict[str, Exception] = {}

        #: Gangs of which the last reading raised.
        self._half_read: set[str] = set()
        #: By gang, the gangs that list it, and those that name it as their parent.
        self._listed_by: dict[str, dict[str, None]] = {}
        self._named_by: dict[str, dict[str, None]] = {}
        self._parents = Parents(self.gangs, self._named_by, self.pod_group_names)
        companions = Companions(self.gangs, self.groups, self.group_of, self._parents)
        self._changed = ChangedGangs(self.gangs, self._views, companions)
        self._later: dict[str, None] = {}

        #: Gangs that miss their PodGroup, and until when they wait for it, in that order; judged
        #: ones stay.
        self._awaits_until_s: dict[str, float] = {}
        #: Those of them that still wait, the first to be judged first.
        self._awaiting: dict[str, None] = {}

        # Never reused, also not by a group that is formed again under the same id.
        self._generations = count(1)

    def gang(
        self,
        gang_id: str,
        *,
        plain: bool = False,
    ) -> GangRecord:
        """Record of a gang, created if needed; the gang counts as changed."""
        record = self.gangs.get(gang_id)
        if record is None:
            record = self.gangs[gang_id] = GangRecord(id=gang_id, plain=plain)

        self._changed.add(gang_id)
        return record

    def touch(self, gang_id: str) -> None:
        """Mark a gang as changed: its view is rebuilt at the next refresh."""
        if gang_id in self.gangs:
            self._changed.add(gang_id)

    def touch_unhurried(self, gang_ids: Iterable[str]) -> None:
        """Mark gangs as changed that another object concerns, not their pods: any number of them
        may wait for one object, or have one owner, and no plan waits until all of them were read.
        """
        known = []
        for gang_id in gang_ids:
            if gang_id in self.gangs:
                known.append(gang_id)

        self._changed.add_unhurried(known)

    def read_again(self, gang_id: str) -> None:
        """Read a gang and form its group again at the next refresh, although nothing
        changed (I10).
        """
        self.touch(gang_id)
        self._later[gang_id] = None

    def must_read(self, gang_id: str) -> None:
        """Read a gang before the next plan, since a member of it takes room."""
        self._changed.must_read(gang_id)

    def ignore_run_times(self, namespaces: Set[str]) -> None:
        """Ignore run times declared in these namespaces, and only in these (semantics H11)."""
        changed = self._ignored ^ namespaces
        self._ignored = frozenset(namespaces)

        # Also those of namespaces that are believed again: their counted run times change back.
        self._changed.add_unhurried(view for view in self._views if namespace_of(view) in changed)

    def set_aside(self, gang_ids: frozenset[str]) -> None:
        """Schedule no pods of these gangs, and those of all others."""
        changed = self._set_aside ^ gang_ids
        self._set_aside = gang_ids
        self._changed.add_all(view for view in self._views if view in changed)

    def room_unused(
        self,
        namespace: str,
        at_s: int,
    ) -> None:
        """Rank groups of a namespace that keep room for members to come as if they were created at
        `at_s` (semantics B8).

        Ranked by their own age, they could in turn keep room from a younger gang of another
        namespace.
        """
        known = self._unused_room_s
        if at_s < known.get(namespace, 0) + UNUSED_ROOM_EVERY_S:
            return  # each time, the groups concerned are decided again

        namespaces = {record.namespace for record in self.gangs.values()}
        self._unused_room_s = {}
        for name in known.keys() & namespaces:
            self._unused_room_s[name] = known[name]

        self._rank_from(namespace, at_s)

    def clock_set(self, wall_s: int) -> None:
        """The clock was set: no room was found unused later than now, whatever it said then."""
        for namespace, at_s in self._unused_room_s.items():
            if at_s > wall_s:
                self._rank_from(namespace, wall_s)

    def _rank_from(self, namespace: str, at_s: int) -> None:
        self._unused_room_s[namespace] = at_s
        views = self._views.items()
        self._changed.add_unhurried(
            each for each, view in views if view.to_come and namespace_of(each) == namespace
        )

    def _created_s(self, gangs: Iterable[Gang]) -> int:
        """The creation that ranks a group (semantics Q1, B8)."""
        created_s = []
        unused_s = 0
        for gang in gangs:
            created_s.append(self.gangs[gang.id].creation_s)
            if gang.to_come:
                unused_s = max(unused_s, self._unused_room_s.get(namespace_of(gang.id), 0))

        return max(unused_s, min(created_s))

    def is_touched(self, group_id: str) -> bool:
        """Whether a gang of the group changed, so that the next refresh rebuilds the group."""
        return not self._changed.is_disjoint(self.groups[group_id].gangs)

    def own_rooms(self, gang_id: str) -> frozenset[str]:
        """The groups of nominations whose room members of a gang may use: its own group, and the
        gang's members to come.
        """
        # A member may be larger than those that were to come; then the promise is what ends.
        return frozenset({self.group_of.get(gang_id, gang_id), room_key(gang_id)})

    def view(self, gang_id: str) -> Gang:
        """View of a gang at the last refresh."""
        return self._views[gang_id]

    def parts(self, group_id: str) -> Root:
        """The parts of a group, as its gangs are now; of a gang without a group, the gang."""
        group = self.groups.get(group_id)
        gangs = group.gangs if group is not None else (group_id,)
        least = {}
        for gang in gangs:
            if gang in self.gangs:
                least[gang] = self.gangs[gang].least

        part = group.root if group is not None else group_id
        return Root(part, least)

    def started(self, group_id: str) -> dict[str, int]:
        """The started members of a group by gang, by the records: commits since the last refresh
        are in them.
        """
        group = self.groups.get(group_id)
        gangs = group.gangs if group is not None else (group_id,)
        result: dict[str, int] = {}
        for gang in gangs:
            if gang in self.gangs:
                result[gang] = self.gangs[gang].started

        return result

    def parents_changed(self) -> None:
        """Rebuild the trees whose parents must have objects, because the kind of these objects
        became readable or unreadable.
        """
        self._later |= self._parents.waiting_for_objects()

    def above(self, gang_id: str) -> list[str]:
        """The parts of its tree that a gang is in, the innermost first."""
        return self._parents.above(gang_id)

    def accusers(self, gang_id: str) -> list[GroupRecord]:
        """Groups whose refusal names this gang as its cause (semantics I4), of the first that list
        it: ten thousand may, and each is an Event.
        """
        groups = set()
        for other in islice(self._listed_by.get(gang_id, ()), MOST_ACCUSERS):
            if other in self.group_of:
                groups.add(self.group_of[other])

        result: list[GroupRecord] = []
        for group_id in sorted(groups):
            if gang_id in self.groups[group_id].accused:
                result.append(self.groups[group_id])

        return result

    def group(self, group_id: str, now_s: float) -> Group:
        """View of a group at the last refresh, for a plan at `now_s`."""
        record = self.groups[group_id]
        if record.avoid:
            # Time alone changes this, so no message says that the view is outdated.
            kept = not_over(record.avoid, now_s)
            if kept != record.avoid:
                # Nor does anything else say so of why preemption did not help: a victim may be on
                # that node (V25).
                record.avoid = kept
                record.view = None
                record.not_helpful = None

        if record.view is None:
            try:
                record.view = self._made(record)
            except Exception as error:  # of this group, whoever asks for its view (I10)
                self._faults[group_id] = error
                record.view = self._stand_in(record)

        return record.view

    def _made(self, record: GroupRecord) -> Group:
        read = [self._views[gang_id] for gang_id in record.gangs]
        gangs = tuple([with_all(gang, self.policy) for gang in read])
        root = record.root
        topology: tuple[str, ...] = ()
        if isinstance(root, Composite):
            topology = root.topology
            if any(composite.never_preempts for composite in composites_of(root)):
                gangs = tuple([structs.replace(gang, never_preempts=True) for gang in gangs])

        # Without members to come, which have the priority of one that is present.
        pods: list[Pod] = []
        for present in read:
            pods += present.pending
            pods += present.retry
            pods += [placement.pod for placement in (*present.kept, *present.yieldable)]

        priorities = [pod.priority for pod in pods]
        complete = self._complete_starts(gangs)
        rest = rest_of_start(gangs, root, complete)

        view = Group(
            id=record.id,
            gangs=gangs,
            priority=max(priorities, default=0),
            creation_s=self._created_s(gangs),
            broken=bool(rest) or heals(gangs, root),
            rest=rest,
            pinned=is_pinned(gangs, root, rest, self._fixes_node),
            refusal=record.evictions or record.refusal,
            # While victims end, the wait is not the gang's doing (V16).
            clock_started_s=None if record.nomination is not None else record.clock_s,
            yielded_to=record.yielded_to,
            avoid=frozenset(record.avoid),
            struck=struck(record.avoid),
            generation=record.generation,
            rounds=record.rounds,
            tree=record.tree,
            topology=topology,
        )
        # Once for each change: a plan asks it of all groups that are ready, of which it decides a
        # few.
        minimum = tree_choices.needed(view)
        return view if minimum is view else structs.replace(view, minimum=minimum)

    def _complete_starts(self, gangs: Sequence[Gang]) -> frozenset[JointStart]:
        """The starts of which all needed members were bound, now or at an earlier look.

        Whoever lost all of its pods is not known any more; the others of its group remember it. By
        the creation of pods alone, one of the same second would be taken for what was not sent.
        """
        complete = complete_starts(gangs)
        known: set[JointStart] = set()
        for gang in gangs:
            record = self.gangs[gang.id]
            if gang.together in complete:
                record.complete_start = gang.together

            if record.complete_start is not None:
                known.add(record.complete_start)

        return frozenset(known)

    def _stand_in(self, record: GroupRecord) -> Group:
        """The view of a group that cannot be built: it has its pods, and is refused."""
        gangs = tuple(self._views[gang_id] for gang_id in record.gangs)
        reference = record.aside.reference if record.aside is not None else UNKNOWN_REFERENCE
        return Group(
            id=record.id,
            gangs=gangs,
            refusal=not_planned(reference),
            generation=record.generation,
        )

    def changed(self, group_id: str) -> None:
        """Record that the group's own record has changed (a round, its wait time, a yield)."""
        record = self.groups[group_id]
        record.view = None
        record.generation = next(self._generations)

    @property
    def is_behind(self) -> bool:
        """Whether the next `refresh` has work to do even if nothing changes until then."""
        return bool(self._later) or self._changed.any_new

    @property
    def is_caught_up(self) -> bool:
        """Whether all gangs were read once since the start."""
        return self._changed.is_caught_up

    def awaits_pod_group(self, group_id: str) -> bool:
        """Whether a gang of the group still waits for its PodGroup, or its tree for a minimum (I9);
        the group is then not decided.
        """
        group = self.groups[group_id]
        if self._parents.awaits_minimum(group.root):
            return True

        return not self._awaiting.keys().isdisjoint(group.gangs)

    def next_deadline_s(self) -> float:
        """Time at which `refresh` must be called even if nothing changes."""
        first = next(iter(self._awaiting), None)
        awaits_s = self._awaits_until_s[first] if first is not None else math.inf
        return min(awaits_s, self._parents.next_deadline_s())

    def exceeds(self, units: float, *, with_new: bool = True) -> bool:
        """Whether reading all changed gangs takes more than this many units of work, each about the
        time for one member; with `with_new`, new gangs count, too, although plans do not wait for
        them.
        """
        return self._changed.exceeds(units, with_new=with_new)

    def refresh(
        self,
        now_s: float,
        most: float = inf,
        *,
        most_new: float = inf,
    ) -> Refreshed:
        """Rebuild the views of changed gangs and their groups, up to `most` units of work,
        `most_new` of them for new gangs.

        Gangs that are (or would be) decided together are grouped at once. Other gangs that list a
        changed gang follow in batches, since any number of gangs may list the same one.
        """
        forgotten: set[str] = set()
        regroup: set[str] = set()
        changed: set[str] = set()

        over = takewhile(lambda each: self._awaits_until_s[each] <= now_s, self._awaiting)
        missed = list(islice(over, MISSED_AT_A_TIME))
        for gang_id in missed:
            del self._awaiting[gang_id]

        self._changed.add_unhurried(missed)

        read = self._parents.read

        def is_enough() -> bool:
            looked = self._parents.read - read
            return len(regroup) >= GROUPED_AT_A_TIME or looked >= LOOKED_AT_A_TIME

        for gang_id in self._changed.take(most, most_new, is_enough=is_enough):
            record = self.gangs[gang_id]
            if record.empty:
                regroup |= {gang_id} | self._siblings(gang_id)
                self._later |= self._concerned(gang_id)
                self._forget(record)
                forgotten.add(gang_id)
                continue

            if gang_id not in self._views:
                regroup.add(gang_id)

            group = self.groups.get(self.group_of.get(gang_id, ""))
            # Its group may be one that could not be formed, and the change may be what mends that
            # (I10).
            if group is not None and group.aside is not None and group.aside.seen is not None:
                regroup.add(gang_id)

            try:
                self._read(record, regroup, now_s)
            except Exception as error:  # the gang's own fault, whatever it is (I10)
                self._faults[gang_id] = error
                self._half_read.add(gang_id)
                self._views[gang_id] = stand_in_view(record)

            changed.add(gang_id)

        # Any tenant can have ten thousand gangs list one gang, and then edit it each second. A
        # commit leaves them to the next turn, as it does new gangs.
        for gang_id in list(islice(self._later, AT_A_TIME if most_new > 0 else 0)):
            del self._later[gang_id]
            regroup.add(gang_id)

        gone = self._regroup(regroup)
        groups = {
            self.group_of[gang_id] for gang_id in changed | regroup if gang_id in self.group_of
        }
        for group_id in groups:
            self.changed(group_id)
            # now, in parts, rather than all of them before the next plan
            self.group(group_id, now_s)

        settled = {
            self.group_of[each] for each in self._parents.settled(now_s) if each in self.group_of
        }
        return Refreshed(groups | settled, gone, forgotten)

    def _read(
        self,
        record: GangRecord,
        regroup: set[str],
        now_s: float,
    ) -> None:
        """Read a changed gang; adds those that are to be grouped again to `regroup`."""
        gang_id = record.id
        record.read_run_time(
            self.defaults.expected_runtime_s,
            ignored=record.namespace in self._ignored,
        )

        if record.plain:
            record.read_delay(self.defaults)

        # Before the specification is read: those that it lists no more have to be regrouped, too.
        before = self._siblings(gang_id)
        spec = record.spec

        # How far the last attempt came is unknown: others may wait for what it was to tell them.
        is_half_read = gang_id in self._half_read
        if not record.plain and (record.read_spec(defaults=self.defaults) or is_half_read):
            self._mention(record, spec, now_s)
            regroup |= {gang_id} | before | self._siblings(gang_id)
            self._later |= self._concerned(gang_id)

        # With its first pod a gang can be no parent any more, and with its last one it can (I9).
        if record.has_pods is not bool(record.members):
            record.has_pods = not record.has_pods
            self._later |= self._concerned(gang_id)
            if gang_id in self._named_by:
                self._later |= self._parents.around(gang_id)

        self._views[gang_id] = self._view(record, now_s)
        self._half_read.discard(gang_id)

    def take_faults(self) -> dict[str, Exception]:
        """By group id, what was raised while groups were read since the last call."""
        faults = self._faults
        self._faults = {}
        # A gang that could not be read is in a group by now, if only in one of its own.
        result: dict[str, Exception] = {}
        for each, error in faults.items():
            result[self.group_of.get(each, each)] = error

        return result

    def _view(self, record: GangRecord, now_s: float) -> Gang:
        record.note_whose(self._names)
        record.trusts_stamps = self.trusts_stamps
        self._workers.note(record)
        view = gang_view(record, self.policy)

        if record.id in self._set_aside:
            return structs.replace(
                view, uninitialised=Refusal(Reason.PAUSED, SetAsideByOrder(record.id))
            )

        if view.uninitialised is None or record.pod_group is not None:
            self._found(record.id)
            return view

        if not view.waiting:  # the next pod waits for a PodGroup of its own time
            self._awaits_until_s.pop(record.id, None)
            self._awaiting.pop(record.id, None)
        elif record.id not in self._awaits_until_s:
            self._awaits_until_s[record.id] = now_s + POD_GROUP_WAIT_S
            self._awaiting[record.id] = None

        names = self.pod_group_names
        refusal = self._of_unread_object(record)
        if refusal is not None:
            names.missing(record.id, record.api_groups)
            return structs.replace(view, uninitialised=refusal)

        # A gang without a minimum may have one in a PodGroup that we may not read.
        no_minimum = record.spec is not None and record.spec.min_member is None
        may_exist = no_minimum and not names.forbidden.isdisjoint(record.api_groups)
        if record.id in self._awaiting or not (
            may_exist or view.uninitialised.reason is Reason.POD_GROUP_MISSING
        ):
            return view

        return structs.replace(view, uninitialised=names.missing(record.id, record.api_groups))

    def _of_unread_object(self, record: GangRecord) -> Refusal | None:
        """What is wrong with the PodGang that the pods name, if it declares none of its gangs
        because of that.
        """
        oldest = record.oldest()
        if oldest is None or keys.GROVE not in record.api_groups:
            return None

        whole = self.gangs.get(f"{oldest.namespace}/{oldest.labels.get(keys.GROVE_GANG, '')}")
        pod_group = None
        if whole is not None:
            pod_group = whole.pod_groups.get(keys.GROVE)

        if pod_group is None or not pod_group.invalid:
            return None

        return Refusal(Reason.INVALID_GANG, Worded("; ".join(pod_group.invalid)))

    def _found(self, gang_id: str) -> None:
        """The gang misses no PodGroup (any more)."""
        self._awaits_until_s.pop(gang_id, None)
        self._awaiting.pop(gang_id, None)

        # Else another PodGroup with a similar name would still rewrite a message that is no longer
        # told.
        self.pod_group_names.found(gang_id)

    def _siblings(self, gang_id: str) -> set[str]:
        """Gangs listed by this one or decided with it, and all parts of its tree; the gangs of a
        tree with too many of them are each refused alone.
        """
        record = self.gangs.get(gang_id)
        listed = set(record.spec.group) if record and record.spec else set()
        listed |= self._parents.around(gang_id).keys()
        group = self.groups.get(self.group_of.get(gang_id, ""))

        return listed | set(group.gangs if group else ())

    def _concerned(self, gang_id: str) -> dict[str, None]:
        """The gangs whose group may change with this one: those that list it, and the parts below
        it.
        """
        listed_by = self._listed_by.get(gang_id, {})
        named_by = self._named_by.get(gang_id, {})
        return listed_by | named_by | self._parents.below(gang_id)

    def _mention(
        self,
        record: GangRecord,
        before: GangSpec | None,
        now_s: float,
    ) -> None:
        """Record whom the gang lists and names now, instead of what it did `before`."""
        self._unmention(record, before)
        spec = record.spec
        if spec is None:
            return

        for other in spec.group:
            if other != record.id:
                self._listed_by.setdefault(other, {})[record.id] = None

        if spec.parent:
            self._named_by.setdefault(spec.parent, {})[record.id] = None
            was_child = before is not None and before.is_child_of(spec.parent)
            if spec.is_child_of(spec.parent) and not was_child:
                self._parents.named(spec.parent, record.id, now_s)

    def _unmention(self, record: GangRecord, spec: GangSpec | None) -> None:
        if spec is None:
            return

        for other in spec.group:
            _drop(self._listed_by, other, record.id)

        _drop(self._named_by, spec.parent, record.id)

    def _forget(self, record: GangRecord) -> None:
        """Drop the state of a gang of which nothing is left (semantics I6)."""
        self._unmention(record, record.spec)
        self._half_read.discard(record.id)
        del self.gangs[record.id]
        self._found(record.id)
        self._workers.forget(record.id)
        self._views.pop(record.id, None)

    def _regroup(self, gang_ids: set[str]) -> dict[str, GroupRecord]:
        """Form the groups of these gangs anew; returns the groups that no longer exist. Gangs that
        are no longer decided with one whose group cannot be formed are added to `gang_ids`.
        """
        left = set()
        for gang_id in gang_ids:
            if gang_id in self.group_of:
                left.add(self.group_of[gang_id])

        groups = {
            gang_id: self.groups[self.group_of[gang_id]]
            for gang_id in gang_ids
            if gang_id in self.group_of
        }

        # An edit of the list must not begin the wait time anew, or it could be prolonged without
        # end (T1).
        former = {}
        for gang_id, group in groups.items():
            former[gang_id] = Former(group.clock_s, group.avoid)

        trees: dict[str, str] = {}
        failed: dict[str, Exception] = {}
        made: dict[str, GroupRecord] = {}
        self._parents.begin()

        for gang_id in sorted(gang_ids):
            record = self.gangs.get(gang_id)
            if record is None or gang_id not in self._views:
                self.group_of.pop(gang_id, None)
            elif gang_id in trees:
                self.group_of[gang_id] = trees[gang_id]
            else:
                try:
                    formed = self._formed(record, former.get(gang_id))
                # of this gang, and of those that it is decided with (I10)
                except Exception as error:
                    failed[gang_id] = error
                    continue

                made[formed.id] = formed
                self.group_of[gang_id] = formed.id

                if formed.tree is not None:
                    trees |= dict.fromkeys(formed.gangs, formed.id)

        if failed:
            gang_ids |= self._separate(failed, {each: self.groups[each] for each in left} | made)
            left |= made.keys()

        gone = {
            each
            for each in left
            if all(self.group_of.get(gang) != each for gang in (each, *self.groups[each].gangs))
        }
        # A group is named after its first gang, a tree after its parent.
        return {group_id: self.groups.pop(group_id) for group_id in gone}

    def _formed(
        self,
        record: GangRecord,
        former: Former | None,
    ) -> GroupRecord:
        """The group of a gang; a new one keeps the clock and the avoided nodes of its first gang's
        `former` group.
        """
        gangs, refusal, accused, tree = self._resolve(record)
        group_id = TREE + tree.id if tree is not None else gangs[0]

        group = self.groups.get(group_id)
        if group is not None and tree is not None:
            group.gangs = gangs  # children come and go, and the others wait on
        elif group is None or group.gangs != gangs:
            if group is None:
                group = self.groups[group_id] = GroupRecord(id=group_id, gangs=gangs)
            else:
                group.regroup(gangs)

            if former is not None:
                group.clock_s = former.clock_s
                group.avoid = dict(former.avoid)

        group.refusal = refusal
        group.accused = accused
        group.tree = tree

        return group

    def _separate(
        self,
        failed: Mapping[str, Exception],
        groups: Mapping[str, GroupRecord],
    ) -> set[str]:
        """Put each gang whose group cannot be formed into one of its own, and so all that are in
        one of these `groups` with it, since a gang is never in two. Returns these gangs.
        """
        apart: set[str] = set()
        for gang_id, error in failed.items():
            together = {gang_id}
            together.update(*(group.gangs for group in groups.values() if gang_id in group.gangs))

            for each in (together & self._views.keys()) - apart:
                self._faults[each] = error
                apart.add(each)

        for each in sorted(apart):
            self.group_of[each] = self._alone(self.gangs[each]).id

        return apart

    def _alone(self, record: GangRecord) -> GroupRecord:
        """A group of its own for a gang whose group cannot be formed."""
        group = self.groups.get(record.id)
        if group is None:
            group = self.groups[record.id] = GroupRecord(id=record.id, gangs=(record.id,))
        elif group.gangs != (record.id,):
            group.regroup((record.id,))

        group.refusal = not_planned(UNKNOWN_REFERENCE)
        group.accused = ()
        group.tree = None

        return group

    def _resolve(
        self,
        record: GangRecord,
    ) -> tuple[tuple[str, ...], Refusal | None, tuple[str, ...], Composite | None]:
        """(the gangs decided with this one, why they are refused as a group, who is to blame, the
        tree that they form) (semantics I4, I9).
        """
        alone = (record.id,)
        spec = record.spec
        if spec is None:
            return alone, None, (), None
        if spec.group_problem is not None:
            return alone, Refusal(Reason.INVALID_GANG, Worded(spec.group_problem)), (), None

        if spec.parent and not self._parents.is_composite(record.id):
            tree = self._parents.of(record.id)
            if isinstance(tree, Refusal):
                return alone, tree, (), None

            return tuple(sorted(gangs_of(tree))), None, (), tree

        if spec.group == alone:
            return alone, None, (), None

        without = tuple(other for other in spec.group if not self._consents(other, spec.group))
        # Only these may be named as missing or blamed: what exists in another namespace is not
        # revealed (I4).
        near = tuple(other for other in without if namespace_of(other) == namespace_of(record.id))

        absent = []
        for other in near:
            if not self._declared(other):
                absent.append(other)

        if absent:
            text = f"gang {named(absent)} of the group that {record.id} lists does not exist yet"
            return alone, Refusal(Reason.WAITING_FOR_GANG, Worded(text)), (), None

        if near:
            text = (
                f"gang {record.id} lists the group {named(spec.group)} but {named(near)} does not"
            )
            return (
                alone,
                Refusal(Reason.INVALID_GANG, Worded(f"{text}: every gang must list the same set")),
                near,
                None,
            )

        if without:  # what is or is not in another namespace is not for this one to know
            text = f"gang {record.id} waits until {named(without)} lists the same group"
            return alone, Refusal(Reason.WAITING_FOR_GANG, Worded(text)), (), None

        return spec.group, None, (), None

    def _consents(self, gang_id: str, group: tuple[str, ...]) -> bool:
        """Whether the gang exists and lists the same group."""
        spec = self.gangs[gang_id].spec if self._declared(gang_id) else None
        return spec is not None and spec.group == group

    def _declared(self, gang_id: str) -> bool:
        """Whether the gang exists and its declaration is known (its PodGroup, if it needs one, is
        there).
        """
        record = self.gangs.get(gang_id)
        if record is None:
            return False

        return record.spec is not None and not record.spec.pod_group_missing


def _drop(
    index: dict[str, dict[str, None]],
    gang_id: str,
    by: str,
) -> None:
    """Remove what a gang said about another from an index; a gang of which nobody says anything is
    no key of it.
    """
    found = index.get(gang_id, {})
    found.pop(by, None)

    if not found:
        index.pop(gang_id, None)
