"""Trees of gangs: the parents that gangs name, and the trees that result (I9).

Invariant: a parent needs no object: it exists while a gang names it. Its values are those of its
PodGroup, else of its oldest gang. A tree with a fault is refused for each of its gangs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from math import inf

from gangsched.api.keys import COMPOSITE
from gangsched.api.sub_groups import misplaced
from gangsched.model.gang import COMPOSITE_PREFIX, Disruption, Refusal, is_composite_object, shown
from gangsched.model.reasons import Reason
from gangsched.model.text import named
from gangsched.model.tree import MAX_LEVELS, Composite, Part, composites_of, gangs_of, part_id
from gangsched.model.verdict_facts import Worded
from gangsched.state.gangs import GangRecord
from gangsched.state.podgroup_names import PodGroupNames

MOST_GANGS = 128
"""Gangs of one tree: each is compared with each, and all of them are decided in one plan."""
MINIMUM_WAIT_S = 1.0
"""How long the children of a new parent wait for its minimum, if nothing states one: its PodGroup,
or the child that does, may have been created before the first child that is seen, since pods and
PodGroups come by two watches.
"""
SETTLED_AT_ONCE = 100
"""New parents whose wait ends in one turn, as those of thousands do that were seen together."""
LEVELS = f"a tree has at most {MAX_LEVELS} levels"


@dataclass(slots=True)
class Parents:
    """The trees among `gangs`; `named_by` are the gangs that name a gang as their parent, even if
    that is refused; `names` says which kinds of objects can be read.
    """

    gangs: Mapping[str, GangRecord]
    named_by: Mapping[str, Mapping[str, None]]
    names: PodGroupNames
    #: New parents, and until when their children wait for a minimum, in that order.
    _new_until_s: dict[str, float] = field(default_factory=dict)
    _formed: dict[str, Composite | Refusal] = field(default_factory=dict)
    #: Parts that `below` has read so far, so that the caller knows what it takes.
    read: int = 0

    def begin(self) -> None:
        """Drop the cached trees, because gangs have changed."""
        self._formed.clear()

    def named(
        self,
        parent: str,
        child: str,
        now_s: float,
    ) -> None:
        """Record that a gang is a child of a parent from now on; with its first child, the parent
        is new.
        """
        # Its children decide, and nobody else: whoever merely lists the parent as a gang must not
        # end this wait.
        if all(each == child for each in self._children(parent)):
            self._new_until_s.setdefault(
                parent,
                now_s + MINIMUM_WAIT_S,
            )

    def settled(self, now_s: float) -> set[str]:
        """One gang below each parent that is no longer new, so that its tree no longer waits for a
        minimum; a bounded number of parents per call.
        """
        due = [
            *takewhile(
                lambda each: self._new_until_s[each] <= now_s,
                islice(self._new_until_s, SETTLED_AT_ONCE),
            )
        ]
        for parent in due:
            del self._new_until_s[parent]

        first = (next(self._with_pods(parent), None) for parent in due)
        return {gang_id for gang_id in first if gang_id is not None}

    def next_deadline_s(self) -> float:
        """When the next parent is no longer new."""
        return next(iter(self._new_until_s.values()), math.inf)

    def awaits_minimum(self, part: Part) -> bool:
        """Whether a new parent in the part has no minimum yet; an object that declares several
        parts declares all.
        """
        if not self._new_until_s:
            return False

        for composite in composites_of(part):
            if composite.id in self._new_until_s and self._lacks_minimum(composite):
                return True

        return False

    def _lacks_minimum(self, composite: Composite) -> bool:
        gangs = []
        for child in composite.children:
            if isinstance(child, str):
                gangs.append(child)

        records = (self.gangs[each] for each in (composite.id, *gangs) if each in self.gangs)
        objects = (record.pod_group for record in records if record.pod_group is not None)
        declares_all = any(pod_group.is_composite or pod_group.of_object for pod_group in objects)

        return not declares_all and self._min_children(composite.id, gangs) is None

    def of(self, gang_id: str) -> Composite | Refusal:
        """The tree of a gang with a parent; the gang's refusal if there is no valid tree."""
        top, problem = self._top(gang_id)
        if problem is not None:
            return problem

        if top not in self._formed:
            self._formed[top] = self._whole(top)

        return self._formed[top]

    def is_composite(self, gang_id: str) -> bool:
        """Whether gangs name it as their parent, and it has no pods of its own; or its object says
        that it is one.
        """
        if is_composite_object(gang_id):
            return True

        record = self.gangs.get(gang_id)
        # Pods make it a gang, and naming it as a parent a fault of those that do (`_fault`).
        if record is not None and record.members:
            return False
        if record is not None and record.pod_group is not None and record.pod_group.is_composite:
            return True

        return self._has_children(gang_id)

    def around(self, gang_id: str) -> dict[str, None]:
        """The parts of the tree that a gang is in; empty if the tree has so many gangs that each of
        them is refused alone.
        """
        record = self.gangs.get(gang_id)
        if gang_id not in self.named_by and not (record and record.spec and record.spec.parent):
            return {}

        # One more than a tree may have: without it, the others are decided together.
        return self.below(
            self._top(gang_id)[0],
            MOST_GANGS + 1,
        )

    def below(self, gang_id: str, most: float = inf) -> dict[str, None]:
        """The parts below a parent; empty if there are more than `most` gangs among them.

        At most as many levels are read as a tree may have: deeper parts are refused in any case,
        and a chain of ten thousand parents would be read once for each of its parts.
        """
        found: dict[str, None] = {}
        parents = [gang_id]
        gangs = 0

        for _ in range(MAX_LEVELS):
            inner: list[str] = []
            for each in (child for parent in parents for child in self._children(parent)):
                if each in found:
                    continue

                self.read += 1
                found[each] = None
                is_inner = each in self.named_by

                gangs += not is_inner
                if gangs > most or len(found) > most * MAX_LEVELS:
                    return {}

                if is_inner:
                    inner.append(each)

            parents = inner

        return found

    def _children(self, parent: str) -> Iterator[str]:
        """The parts that name this parent, without those whose own declaration is refused."""
        for each in self.named_by.get(parent, ()):
            record = self.gangs.get(each)
            if record is not None and record.spec is not None and record.spec.is_child_of(parent):
                yield each

    def _with_pods(self, parent: str, levels: int = MAX_LEVELS) -> Iterator[str]:
        """The gangs below a parent that have pods."""
        # Inner composites are in no group: a root that has only these woke nobody.
        for child in self._children(parent):
            if self.gangs[child].members:
                yield child
            elif levels:
                yield from self._with_pods(child, levels - 1)

    def _has_children(self, gang_id: str) -> bool:
        return next(self._children(gang_id), None) is not None

    def above(self, gang_id: str) -> list[str]:
        """The parts that a gang is in, as far as they are known, the innermost first."""
        path: list[str] = []
        record = self.gangs.get(gang_id)
        while (
            record is not None
            and record.spec is not None
            and record.spec.parent
            and len(path) < MAX_LEVELS
        ):
            path.append(record.spec.parent)
            record = self.gangs.get(path[-1])

        return path

    def waiting_for_objects(self) -> dict[str, None]:
        """The parts that name a parent which must have an object."""
        parents = filter(is_composite_object, self.named_by)
        objects: dict[str, None] = {}
        for parent in parents:
            for child in self.below(parent):
                objects[child] = None

        return objects

    def _top(self, gang_id: str) -> tuple[str, Refusal | None]:
        """The root of a gang's tree, and why there is none."""
        path = [gang_id]
        while True:
            part = path[-1]
            record = self.gangs.get(part)
            spec = record.spec if record is not None else None

            # Not the gang itself: its own declaration is judged as that of any gang.
            if len(path) > 1:
                child = f"gang {gang_id}" if path[-2] == gang_id else shown(path[-2])
                why = self._fault(part, record, child)
                if why is not None:
                    return part, why

            if spec is None or not spec.parent:
                return part, None

            # Parents are names in manifests, so whoever edits one can close a circle.
            if spec.parent in path:
                circle = " → ".join(map(shown, [*path[path.index(spec.parent) :], spec.parent]))
                return part, _invalid(f"the parents of gang {gang_id} form a circle: {circle}")

            if len(path) == MAX_LEVELS:
                above = (
                    f"{shown(part)} is {MAX_LEVELS - 1} levels above gang {gang_id}, so it must not"
                    " name a parent"
                )
                return part, _invalid(f"{above}: {LEVELS}")

            path.append(spec.parent)

    def _fault(self, part: str, record: GangRecord | None, child: str) -> Refusal | None:
        """Why a part cannot have children; it may have no object, unless its name says so."""
        if is_composite_object(part) and (record is None or not record.pod_groups):
            if COMPOSITE in self.names.forbidden:
                text = "gangsched has no permission to read CompositePodGroups of scheduling.k8s.io"
                return Refusal(Reason.UNSUPPORTED, Worded(text))

            if COMPOSITE in self.names.unserved:
                text = (
                    f"the API server does not serve CompositePodGroups, and {child} names one as"
                    " its parent"
                )
                return Refusal(Reason.UNSUPPORTED, Worded(text))

            text = f"{shown(part)}, which {child} names as its parent, does not exist yet"
            return Refusal(Reason.WAITING_FOR_GANG, Worded(text))

        if record is None or record.spec is None:
            return None
        if record.members and record.pod_group is not None and record.pod_group.sub_groups:
            return _invalid(misplaced(record.pods, record.pod_group))

        if record.members:
            only = "a gang of a tree has either pods or children"
            return _invalid(f"{shown(part)}, the parent of {child}, has pods itself: {only}")

        spec = record.spec
        pod_group = record.pod_group
        declared_by = record.owner.who if record.owner is not None else _object(part)
        of = f"{declared_by}, the parent of {child}"

        why = spec.group_problem or spec.misplaced
        if why is not None:
            return _invalid(f"{of}: {why}")

        # Of a tree they would have to be searched for all gangs at once; ignored, they would be so
        # silently.
        only_of_gangs = {
            "slices": spec.constraints.slices,
            "preferred topology": spec.constraints.preferred,
        }
        stated = [name for name, value in only_of_gangs.items() if value]
        if stated:
            text = (
                f"{of}, sets {' and '.join(stated)}, which only gangs with pods may set: move or"
                " remove it"
            )
            return Refusal(Reason.UNSUPPORTED, Worded(text))

        if pod_group is not None and pod_group.invalid:
            return _invalid(f"{of}: {'; '.join(pod_group.invalid)}")
        if pod_group is not None and pod_group.unsupported:
            return Refusal(Reason.UNSUPPORTED, Worded(f"{of}: {'; '.join(pod_group.unsupported)}"))

        return None

    def _whole(self, top: str) -> Composite | Refusal:
        if not self.below(top, MOST_GANGS):
            return _invalid(f"more than {MOST_GANGS} gangs are in the tree of {shown(top)}")

        tree = self._composite(top, 1)
        # Else the gangs below such a composite would be refused, and start with the others of the
        # tree all the same.
        for composite in composites_of(tree):
            child = top
            if composite.children:
                child = shown(part_id(composite.children[0]))

            why = self._fault(composite.id, self.gangs.get(composite.id), child)
            if why is not None:
                return why

        # Composites of the last level were taken for gangs above, so that a chain without end is
        # read four levels deep only.
        deep = sorted(gang for gang in gangs_of(tree) if self.is_composite(gang))
        if deep:
            lowest = named([*map(shown, deep)])
            return _invalid(
                f"in the tree of {shown(top)}, {lowest} is at level {MAX_LEVELS} and has children:"
                f" {LEVELS}"
            )

        return tree

    def _composite(self, parent: str, level: int) -> Composite:
        """The part that a parent is, with all parts below it; those of the last level are gangs."""
        children: list[Part] = []
        for child in sorted(self._children(parent)):
            is_inner = level + 1 < MAX_LEVELS and self.is_composite(child)
            children.append(self._composite(child, level + 1) if is_inner else child)

        gangs = [part for part in children if isinstance(part, str)]
        least = self._min_children(parent, gangs)
        record = self.gangs.get(parent)
        pod_group = record.pod_group if record is not None else None
        spec = record.spec if record is not None else None

        return Composite(
            id=parent,
            children=tuple(children),
            min_children=len(children) if least is None else least,
            topology=self._topology(parent, [part_id(child) for child in children]),
            indivisible=spec is not None and spec.disruption is Disruption.ALL,
            never_preempts=pod_group is not None and pod_group.never_preempts,
            note=_note(record, len(children), least),
        )

    def _min_children(self, parent: str, gangs: Sequence[str]) -> int | None:
        """The minimum in the PodGroup named as the parent, else in its oldest gang with one; None
        for all children.
        """
        # By age, as pods of one gang decide its values (I3): a child that is added later changes
        # nothing.
        records = sorted(
            (self.gangs[gang] for gang in gangs), key=lambda each: (each.creation_s, each.id)
        )
        stated = (self.gangs.get(parent), *records)
        specs = (each.spec for each in stated if each is not None and each.spec is not None)

        numbers = (spec.min_children for spec in specs)
        return next((number for number in numbers if number is not None), None)

    def _topology(self, parent: str, children: Sequence[str]) -> tuple[str, ...]:
        """Node labels of which one domain holds the whole part: those that its PodGroup or that of
        a child says.
        """
        of_parent = None
        if parent in self.gangs:
            of_parent = self.gangs[parent].spec

        stated = set(of_parent.constraints.topology if of_parent is not None else ())

        for spec in (self.gangs[child].spec for child in children):
            # Every child may state it; without an object for the parent there is no other place.
            stated |= set(spec.tree_topology if spec is not None else ())

        return tuple(sorted(stated))


def _object(part: str) -> str:
    """The object that declares a part of a tree, as shown to users."""
    if is_composite_object(part):
        return f"CompositePodGroup {part.replace(COMPOSITE_PREFIX, '', 1)}"

    return f"PodGroup {part}"


def _invalid(text: str) -> Refusal:
    return Refusal(Reason.INVALID_GANG, Worded(text))


def _note(record: GangRecord | None, children: int, least: int | None) -> str:
    """What the owner that declares a parent says about children that are missing."""
    owner = record.owner if record is not None else None
    is_of_owner = owner is not None and owner.is_tree and owner.min_children == least
    if owner is None or least is None or not is_of_owner or children >= least:
        return ""

    return owner.note
