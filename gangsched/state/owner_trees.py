"""Owners of Jobs whose Jobs start together, such as JobSets: the tree of which each Job is a gang
(semantics O3, I9).

Invariant: only owners with a Job of which a pod asks cost anything. The tree is that of any gangs
that name the same parent; here is decided which parent a Job has, and what the owner declares for
it. A message costs the same whatever number of Jobs an owner has: what follows from it is declared
in `look`, once for all messages, and one namespace after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Final, NamedTuple

from gangsched.api import keys
from gangsched.api.owner_declarations import LATE_S, OwnerDeclaration
from gangsched.model.owners import (
    OWNER_KINDS,
    OWNER_VERSIONS,
    ControllerRef,
    JobOwner,
    JobSetOwner,
    OwnerPart,
)
from gangsched.model.protocol import ObjectRef
from gangsched.sentences import owning as sentences
from gangsched.state.groups import Registry
from gangsched.state.known_owners import KnownOwners
from gangsched.state.namespace_turns import NamespaceTurns
from gangsched.state.parents import MOST_GANGS
from gangsched.state.timers import Timers

OWNER_WAIT_S: Final = 2.0
"""How long pods wait for an owner that is not known, once owners of its kind are read (O8): they
come by two watches, and no order holds between them.
"""
UID_SHOWN: Final = 8
DECLARED_AT_A_TIME: Final = 1_000
"""Parts and Jobs of the owners that one turn declares again, and at least one owner."""
OF_A_TREE: Final = frozenset(keys.MIN_CHILDREN)
"""The keys that mean nothing for a gang alone."""


class Apart(StrEnum):
    """Why each Job of an owner starts by itself."""

    UNREAD = auto()
    UNKNOWN = auto()
    TOO_MANY = auto()


class TreePlace(NamedTuple):
    """Where a Job is: the name of its gang's parent, "" for none; `waits`: why that is not known
    yet.
    """

    parent: str = ""
    waits: str = ""


ALONE: Final = TreePlace()


@dataclass(slots=True)
class _Tree:
    """An owner of Jobs."""

    ref: ControllerRef
    namespace: str
    #: Name of the parent that all of its Jobs have; those of stages begin with it.
    name: str
    #: Ids of the parents that are its own.
    parents: frozenset[str] = frozenset()
    #: As it was read last.
    owner: JobSetOwner | None = None
    #: Names of its parts whose Jobs start together, as it was read last.
    parts: frozenset[str] = frozenset()
    #: By name of a parent, all Jobs of its parts.
    numbers: dict[str, int] = field(default_factory=dict)
    #: By name of a parent for which it is declared, the Jobs that start together.
    declared: dict[str, int] = field(default_factory=dict)
    #: By id of a Job whose pods ask, its part.
    jobs: dict[str, str] = field(default_factory=dict)
    #: Jobs among these that are done and whose pods still count as a child each.
    done: set[str] = field(default_factory=set)
    #: Why its Jobs start by themselves, as far as it was told.
    told_reasons: set[Apart] = field(default_factory=set)
    #: Some of its Jobs have had no pods for `LATE_S`.
    is_late: bool = False
    #: The places of its Jobs may be other ones since it was declared.
    is_outdated: bool = False

    @property
    def key(self) -> str:
        """`namespace/name` of the owner."""
        return f"{self.namespace}/{self.ref.name}"

    @property
    def id(self) -> str:
        """What the owner is known by."""
        return f"{self.namespace}/{self.ref.uid}"


class OwnerTrees:
    """The trees of all owners of Jobs."""

    def __init__(self, registry: Registry, known: KnownOwners) -> None:
        self._registry = registry
        self._known = known
        self._trees: dict[str, _Tree] = {}
        #: By id of a parent, whether it is declared or not, the id of its owner.
        self._id_of: dict[str, str] = {}
        #: By id of a Job that has entered, the id of its owner then.
        self._tree_of: dict[str, str] = {}
        #: By id of the owner: when Jobs stop to wait for it, and when it is late.
        self._waits = Timers()
        self._lates = Timers()
        #: Ids of owners that are to be declared again.
        self._changed = NamespaceTurns()

    def __len__(self) -> int:
        """Number of stored trees and Jobs."""
        number = len(self._trees) + len(self._changed)
        for tree in self._trees.values():
            number += len(tree.jobs)

        return number

    def enter(self, job_id: str, job: JobOwner, now_s: float) -> None:
        """A pod of a Job asks, or the Job has changed."""
        ref = job.controller
        tree_id = f"{job.namespace}/{ref.uid}" if ref is not None else ""
        if self._tree_of.get(job_id, tree_id) != tree_id:
            self.leave(job_id)
        if ref is None:
            return

        tree = self._trees.get(tree_id)
        if tree is None:
            tree = self._add(job.namespace, ref, now_s)

        tree.jobs[job_id] = job.part
        self._tree_of[job_id] = tree_id
        was_done = job_id in tree.done
        is_done = job.minimum == 0 and job.succeeded > 0
        if is_done == was_done:
            return

        tree.done.discard(job_id)
        if is_done:
            tree.done.add(job_id)

        self._declare_soon(tree)

    def leave(self, job_id: str) -> None:
        """No pod of a Job asks any more, or the Job has another owner."""
        tree_id = self._tree_of.pop(job_id, None)
        if tree_id is None:
            return

        tree = self._trees[tree_id]
        tree.jobs.pop(job_id, None)
        tree.done.discard(job_id)
        if tree.jobs:
            self._declare_soon(tree)
            return

        for name in list(tree.declared):
            self._withdraw(tree, name)

        del self._trees[tree.id]
        self._release(tree)
        self._waits.drop(tree.id)
        self._lates.drop(tree.id)
        self._changed.discard(tree.namespace, tree.id)

    def place(self, job: JobOwner, now_s: float) -> TreePlace:
        """Where a Job is that has entered."""
        ref = job.controller
        tree = self._trees.get(f"{job.namespace}/{ref.uid}") if ref is not None else None
        if ref is None or tree is None:
            return ALONE

        if tree.is_outdated:
            return TreePlace(waits=sentences.awaited_jobs(ref.kind, tree.key))

        if tree.owner is not None:
            is_too_many = _number_of(tree, job.part) > MOST_GANGS
            if is_too_many or not _has_parent(tree, job.part):
                return ALONE

            return TreePlace(_parent_name(tree, job.part))

        is_read = self._known.is_read(OWNER_KINDS[ref.kind])
        is_awaited = tree.id in self._waits and self._waits.get(tree.id) > now_s
        # While they are being read, which takes as long as it takes, the pods wait.
        if is_read is None or (is_read and is_awaited):
            return TreePlace(waits=sentences.awaited_jobs(ref.kind, tree.key))

        return ALONE

    def changed(self, kind: type, uid_id: str | None, now_s: float) -> None:
        """Owners of a kind have changed, or whether they can be read; one of them, if its id is
        given.
        """
        for tree in self._of_kind(kind, uid_id):
            owner = self._find(tree)
            if owner is not None:
                self._read(tree, owner, now_s)
            elif tree.owner is None and uid_id is None:
                self._waits.set(tree.id, now_s + OWNER_WAIT_S)

            self._judge_soon(tree)

    def next_s(self) -> float:
        """When `look` must be called."""
        return min(self._waits.next_s(), self._lates.next_s())

    def is_outdated(self, job: JobOwner) -> bool:
        """Whether the owner of a Job has changed since it was declared."""
        ref = job.controller
        tree = self._trees.get(f"{job.namespace}/{ref.uid}") if ref is not None else None
        return tree is not None and tree.is_outdated

    @property
    def is_behind(self) -> bool:
        """Whether owners still have to be declared again."""
        return bool(self._changed)

    def look(self, now_s: float) -> Iterator[tuple[str, Iterable[str]]]:
        """Declare again what has changed, of a bounded number of owners; yield the namespaces and
        the Jobs whose places may be other ones now. Trees of which Jobs are missing say so.
        """
        for tree_id in self._lates.take_due(now_s):
            tree = self._trees[tree_id]
            tree.is_late = self._lacks_jobs(tree)
            if tree.is_late:
                self._declare_soon(tree)

        # Their Jobs stop to wait for them.
        for tree_id in self._waits.take_due(now_s):
            self._judge_soon(self._trees[tree_id])

        left = DECLARED_AT_A_TIME
        while left > 0 and self._changed:
            for tree_id in self._changed.take():
                tree = self._trees[tree_id]
                self._declare(tree)
                left -= len(tree.parts) + len(tree.jobs)

                if tree.is_outdated:
                    tree.is_outdated = False
                    yield tree.namespace, tree.jobs

    def metadata_of_owner(self, job: JobOwner) -> keys.GangMetadata:
        """What the owner of a Job declares for each of its Jobs that starts by itself."""
        ref = job.controller
        tree = self._trees.get(f"{job.namespace}/{ref.uid}") if ref is not None else None
        if tree is None or tree.owner is None or _has_parent(tree, job.part):
            return ()

        metadata = []
        for key, value in tree.owner.gang_metadata:
            if key not in OF_A_TREE:
                metadata.append((key, value))

        return tuple(metadata)

    def report(self, job: JobOwner, now_s: float) -> tuple[ObjectRef, str] | None:
        """The owner of a Job, and why its Jobs do not start together, if that was not reported
        yet.
        """
        ref = job.controller
        tree = self._trees.get(f"{job.namespace}/{ref.uid}") if ref is not None else None
        if ref is None or tree is None:
            return None

        why = self._apart_because(tree, job, now_s)
        if why is None or why in tree.told_reasons:
            return None

        tree.told_reasons.add(why)
        about = ObjectRef(
            OWNER_VERSIONS[ref.kind],
            ref.kind,
            tree.namespace,
            ref.name,
            ref.uid,
        )
        return about, self._say(tree, job, why)

    def _apart_because(self, tree: _Tree, job: JobOwner, now_s: float) -> Apart | None:
        """Why the Jobs of an owner do not start together; None if they do, or it is not known."""
        if tree.owner is not None:
            return Apart.TOO_MANY if _number_of(tree, job.part) > MOST_GANGS else None

        if self.place(job, now_s).waits:
            return None
        if self._known.is_read(OWNER_KINDS[tree.ref.kind]) is False:
            return Apart.UNREAD

        return Apart.UNKNOWN

    def _say(self, tree: _Tree, job: JobOwner, why: Apart) -> str:
        kind = tree.ref.kind
        match why:
            case Apart.TOO_MANY:
                number = _number_of(tree, job.part)
                return sentences.too_many_jobs(kind, tree.key, number, MOST_GANGS)
            case Apart.UNREAD:
                return sentences.unread_jobs(kind, tree.key)
            case Apart.UNKNOWN:
                return sentences.unknown_jobs(kind, tree.key)

    # --- the trees -------------------------------------------------------------------------------

    def _add(self, namespace: str, ref: ControllerRef, now_s: float) -> _Tree:
        tree = _Tree(ref, namespace, f"{ref.kind}.{ref.name}")
        self._trees[tree.id] = tree
        self._name(tree)
        owner = self._find(tree)
        if owner is None:
            self._waits.set(tree.id, now_s + OWNER_WAIT_S)
        else:
            self._read(tree, owner, now_s)
            self._declare(tree)

        return tree

    def _name(self, tree: _Tree) -> None:
        """Give a tree parents that no other one has: of an owner that was created again, while pods
        of the one before still end, or of one that is named as a stage of another one.
        """
        self._release(tree)
        name = f"{tree.ref.kind}.{tree.ref.name}"
        uid = tree.ref.uid
        # It keeps its name while that is possible, also when the other one is gone.
        for candidate in (tree.name, name, f"{name}.{uid[:UID_SHOWN]}", f"{name}.{uid}"):
            tree.name = candidate
            parents = _parents_of(tree)
            if not any(map(self._is_taken, parents)):
                break

        tree.parents = parents
        for parent in parents:
            self._id_of[parent] = tree.id

    def _release(self, tree: _Tree) -> None:
        for parent in tree.parents:
            if self._id_of.get(parent) == tree.id:
                del self._id_of[parent]

    def _is_taken(self, parent: str) -> bool:
        """Whether a parent is another tree's, or a gang with pods: those of whoever names it, or an
        owner of Jobs as their controller.
        """
        record = self._registry.gangs.get(parent)
        has_pods = record is not None and bool(record.members)
        return has_pods or parent in self._id_of

    def is_parent(self, gang: str) -> bool:
        """Whether an id is that of a tree's parent."""
        return gang in self._id_of

    def _read(self, tree: _Tree, owner: JobSetOwner, now_s: float) -> None:
        """The owner of a tree was read."""
        if tree.owner is None or tree.owner.minimum != owner.minimum:
            tree.is_late = False
            self._lates.set(tree.id, now_s + LATE_S)

        tree.owner = owner
        tree.parts = frozenset(part.name for part in owner.parts)
        self._name(tree)
        tree.numbers = {}
        for part in owner.parts:
            name = _parent_name(tree, part.name)
            tree.numbers[name] = tree.numbers.get(name, 0) + part.jobs

        self._waits.drop(tree.id)

    def _declare_soon(self, tree: _Tree) -> None:
        """Declare the parents of a tree in one of the next turns."""
        self._changed.add(tree.namespace, tree.id)

    def _judge_soon(self, tree: _Tree) -> None:
        """Declare them, and judge the Jobs again, whose places may be other ones."""
        tree.is_outdated = True
        self._declare_soon(tree)

    def _lacks_jobs(self, tree: _Tree) -> bool:
        """Whether fewer Jobs of a parent have pods than start together."""
        present: dict[str, int] = {}
        for part in tree.jobs.values():
            if not _has_parent(tree, part):
                continue

            name = _parent_name(tree, part)
            present[name] = present.get(name, 0) + 1

        # Jobs of a later stage are not created yet, so no pod of them has asked.
        return any(0 < present.get(name, 0) < number for name, number in tree.declared.items())

    def _find(self, tree: _Tree) -> JobSetOwner | None:
        return self._known.find(JobSetOwner, tree.namespace, tree.ref.uid)

    def _of_kind(self, kind: type, tree_id: str | None) -> list[_Tree]:
        if tree_id is not None:
            tree = self._trees.get(tree_id)
            return [tree] if tree is not None else []

        trees = []
        for tree in self._trees.values():
            if OWNER_KINDS[tree.ref.kind] is kind:
                trees.append(tree)

        return trees

    def _declare(self, tree: _Tree) -> None:
        """Give each parent what the owner declares for it."""
        owner = tree.owner
        if owner is None:
            return

        left: dict[str, int] = {}
        done = Counter(tree.jobs[job_id] for job_id in tree.done)
        for part in owner.parts:
            name = _parent_name(tree, part.name)
            left[name] = left.get(name, 0) + _left_of(part, done[part.name])

        for name, number in tree.numbers.items():
            # One Job alone is a tree only where the owner says something about it.
            if number > MOST_GANGS or (number <= 1 and not owner.gang_metadata):
                self._withdraw(tree, name)
                continue

            self._give(tree, name, left[name])

        for name in tree.declared.keys() - tree.numbers.keys():
            self._withdraw(tree, name)

    def _give(self, tree: _Tree, name: str, min_children: int) -> None:
        """Declare a parent."""
        owner = tree.owner
        declared = OwnerDeclaration(
            kind=tree.ref.kind,
            key=tree.key,
            min_children=min_children,
            gang_metadata=owner.gang_metadata if owner is not None else (),
            is_tree=True,
            is_late=tree.is_late,
            is_unread=self._known.is_read(JobSetOwner) is False,
        )
        tree.declared[name] = min_children
        parent = f"{tree.namespace}/{name}"
        record = self._registry.gangs.get(parent)
        if record is None:
            record = self._registry.gang(parent)

        if record.owner != declared:
            record.owner = declared
            self._registry.touch(parent)

    def _withdraw(self, tree: _Tree, name: str) -> None:
        """No longer declare a parent."""
        if name not in tree.declared:
            return

        del tree.declared[name]
        parent = f"{tree.namespace}/{name}"
        record = self._registry.gangs.get(parent)
        if record is not None:
            record.owner = None
            self._registry.touch(parent)


def _left_of(part: OwnerPart, done: int) -> int:
    """Jobs of a part that are children of its parent, or are still to be created."""
    # A Job that is done is a child, which needs nothing, while its pods exist.
    gone = max(0, part.succeeded - done)
    return max(0, part.jobs - gone)


def _has_parent(tree: _Tree, part: str) -> bool:
    """Whether a part's Jobs start together: not those that have a topology domain each."""
    return part in tree.parts and _parent_name(tree, part) in tree.declared


def _number_of(tree: _Tree, part: str) -> int:
    """Jobs that start together with those of a part."""
    return tree.numbers.get(_parent_name(tree, part), 0)


def _parents_of(tree: _Tree) -> frozenset[str]:
    """The ids of all parents that a tree may have."""
    names = {tree.name, *(_parent_name(tree, part) for part in tree.parts)}
    return frozenset(f"{tree.namespace}/{name}" for name in names)


def _parent_name(tree: _Tree, part: str) -> str:
    """The name of the parent of a part's Jobs."""
    owner = tree.owner
    if owner is not None and owner.in_stages:
        return f"{tree.name}.{part}"

    return tree.name
