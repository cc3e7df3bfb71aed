"""Random trees of gangs on three to five nodes in two racks, compared with a search of all choices
(I9).

Each seed draws nodes of which other pods take some room, and a tree of up to three levels with
minimums from none to all, some of whose parts require one rack. Some members come late, then a pod
that is in the way goes. After each event no part has less than its minimum but something, each is
in the rack that it requires, no node is over-full, and nobody waits who fits. Played by `python -m
tests.properties.tree_gangs --trees 20000`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

from gangsched.api import keys
from gangsched.model.objects import Pod
from gangsched.state.parents import MINIMUM_WAIT_S
from gangsched.state.rule_set import Rules
from tests.builders import gang_metadata, node, pod, pod_group, running
from tests.world import World

RACK = "example.com/rack"
SETTLED_S = MINIMUM_WAIT_S + 15
STARTS_WITHIN_S = 10.0
"""In this time everybody starts who fits since something went: no sweep has come by then."""
DEEPEST = 3
SIZES = ((1, 1, 2), (1, 1, 2), (3, 1), (1, 2), (2, 2), (3, 1, 1))
"""GPUs of the members of a gang whose minimum of two can be reached in several ways."""

Free: TypeAlias = tuple[int, ...]
"""Free GPUs of each node."""
Nodes: TypeAlias = frozenset[int]


@dataclass(eq=False)
class TreePart:
    """A gang with the GPUs of its members, by name, or a composite with children. `least` of them
    are needed.
    """

    name: str
    least: int
    in_one_rack: bool = False
    children: list[TreePart] = field(default_factory=list)
    members: dict[str, int] = field(default_factory=dict)

    def every(self) -> Iterator[TreePart]:
        """The part and all parts below it."""
        yield self
        for child in self.children:
            yield from child.every()

    def pods(self) -> dict[str, int]:
        """The GPUs of all members below the part, by name."""
        return {name: gpus for part in self.every() for name, gpus in part.members.items()}

    def needs_nothing(self) -> bool:
        """Whether the part has its minimum without any member."""
        free = sum(child.needs_nothing() for child in self.children)
        return self.least <= free

    def is_whole(self, bound: dict[str, str]) -> bool:
        """Whether the bound members are at least the minimum."""
        if not self.children:
            return sum(name in bound for name in self.members) >= self.least
        return sum(child.is_whole(bound) for child in self.children) >= self.least

    def has_something(self, bound: dict[str, str]) -> bool:
        """Whether a member below the part is bound."""
        return any(name in bound for name in self.pods())


@dataclass(eq=False)
class TreeCase:
    """The nodes, what runs there, and the tree of one seed."""

    dice: random.Random
    gpus: list[int] = field(default_factory=list)
    racks: list[str] = field(default_factory=list)
    taken: dict[str, tuple[int, int]] = field(default_factory=dict)
    tree: TreePart = field(default_factory=lambda: TreePart("svc", 0))

    @classmethod
    def of(cls, seed: int) -> TreeCase:
        """The case of a seed; of every third one its parts have to be packed."""
        case = cls(random.Random(seed))
        dice = case.dice
        if seed % 3 == 0:
            case._to_pack()
            return case

        case.gpus = [dice.choice((2, 3, 4)) for _ in range(dice.randint(3, 5))]
        case.racks = [dice.choice(("r0", "r1")) for _ in case.gpus]
        for number, gpus in enumerate(case.gpus):
            if dice.random() < 0.4:
                case.taken[f"other-{number}"] = (number, dice.randint(1, gpus))
        case.tree = case._composite("svc", 1)
        return case

    def _to_pack(self) -> None:
        """Two or three children with members of several sizes, most of them in one rack each, on
        small nodes; perhaps beside a part that needs nothing.
        """
        dice = self.dice
        self.gpus = [dice.choice((1, 2, 2, 3, 4)) for _ in range(dice.choice((4, 4, 5)))]
        self.racks = [f"r{number % 2}" for number in range(len(self.gpus))]
        for number in range(dice.randint(2, 3)):
            child = TreePart(f"svc-{number}", 2, dice.random() < 0.7)
            sizes = dice.choice(SIZES)
            child.members = {f"{child.name}.{at}": gpus for at, gpus in enumerate(sizes)}
            self.tree.children.append(child)

        self.tree.least = len(self.tree.children)
        if dice.random() < 0.6:
            leaf = TreePart("svc-z-0", dice.randint(0, 2))
            leaf.members = {f"{leaf.name}.{at}": 1 for at in range(dice.randint(1, 2))}
            self.tree.children.append(TreePart("svc-z", 0, dice.random() < 0.7, [leaf]))
            self.tree.least += dice.randint(0, 1)

        # Below one rack the parts are packed together: each way to choose the minimum of one is an
        # alternative, of which only one may be used.
        self.tree.in_one_rack = dice.random() < 0.4
        for number, gpus in enumerate(self.gpus):
            if dice.random() < 0.4:
                self.taken[f"other-{number}"] = (number, dice.randint(1, gpus))

    def _composite(self, name: str, depth: int) -> TreePart:
        made = TreePart(name, 0, self.dice.random() < 0.3)
        for number in range(self.dice.randint(1, 3)):
            child = f"{name}-{number}"
            is_composite = depth < DEEPEST and self.dice.random() < 0.4
            made.children.append(
                self._composite(child, depth + 1) if is_composite else self._gang(child)
            )
        made.least = self.dice.randint(0, len(made.children))
        return made

    def _gang(self, name: str) -> TreePart:
        made = TreePart(name, 0, self.dice.random() < 0.3)
        for number in range(self.dice.randint(1, 3)):
            made.members[f"{name}.{number}"] = self.dice.choice((1, 1, 2, 3))
        made.least = self.dice.randint(0, len(made.members))
        return made

    def within(self, nodes: Nodes, *, in_one_rack: bool) -> list[Nodes]:
        """The nodes on which a part may be: those of each rack, if it must be in one."""
        if not in_one_rack:
            return [nodes]
        return [
            frozenset(n for n in nodes if self.racks[n] == rack) for rack in sorted({*self.racks})
        ]


class Choices:
    """All ways to place the minimum of parts: the free room that each leaves."""

    def __init__(self, case: TreeCase) -> None:
        self.case = case
        self.known: dict[tuple[str, Free, Nodes], frozenset[Free]] = {}

    def after(self, part: TreePart, free: Free, nodes: Nodes, created: set[str]) -> frozenset[Free]:
        """What may be free after the minimum of the part is placed on some of these nodes; empty if
        it does not fit.
        """
        key = (part.name, free, nodes)
        if key not in self.known:
            found: set[Free] = set()
            for allowed in self.case.within(nodes, in_one_rack=part.in_one_rack):
                found |= self._inside(part, free, allowed, created)
            self.known[key] = frozenset(found)
        return self.known[key]

    def _inside(self, part: TreePart, free: Free, nodes: Nodes, created: set[str]) -> set[Free]:
        found: set[Free] = set()
        if part.children:
            for chosen in combinations(part.children, part.least):
                states = {free}
                for child in chosen:
                    states = {
                        left for each in states for left in self.after(child, each, nodes, created)
                    }
                found |= states
            return found
        sizes = sorted(gpus for name, gpus in part.members.items() if name in created)
        for wanted in {*combinations(sizes, part.least)}:
            states = {free}
            for gpus in wanted:
                states = {left for each in states for left in placed(each, gpus, nodes)}
            found |= states
        return found


def placed(free: Free, gpus: int, nodes: Nodes) -> Iterator[Free]:
    """The room left by each way to place one pod."""
    for number in nodes:
        if free[number] >= gpus:
            yield (*free[:number], free[number] - gpus, *free[number + 1 :])


class TreePlay:
    """One case, played in a `World`, with what is wrong after each event."""

    def __init__(self, seed: int) -> None:
        self.case = case = TreeCase.of(seed)
        self.world = World(
            *(
                node(f"n{at}", gpus, labels={RACK: case.racks[at]})
                for at, gpus in enumerate(case.gpus)
            ),
            rules=Rules(unattended=True),
        )
        self.others: dict[str, Pod] = {}
        self.created: set[str] = set()

    def play(self) -> Iterator[str]:
        """Yield what is wrong."""
        dice = self.case.dice
        late = self.begin()
        yield from self._wrong("at first")

        if late:
            self._create(self.case.tree, "", but=set())
            yield from self._wrong("after late members")
        while self.others:
            gone = dice.choice(sorted(self.others))
            self.world.delete(self.others.pop(gone))
            yield from self._wrong(f"after {gone} went", STARTS_WITHIN_S)

    def begin(self) -> set[str]:
        """Create the tree, without members that come later; their names are returned."""
        case, dice = self.case, self.case.dice
        for name, (at, gpus) in case.taken.items():
            other = running(pod(name, gpus=gpus, scheduler_name="default-scheduler"), f"n{at}")
            self.others[name] = other
            self.world.create(other)
        self._declare(case.tree, "")

        # A gang exists, and counts, from its first member on.
        late = {
            name for name in case.tree.pods() if not name.endswith(".0") and dice.random() < 0.2
        }
        self._create(case.tree, "", but=late)
        return late

    def _declare(self, part: TreePart, parent: str) -> None:
        if not part.children:
            return
        stated = [(keys.MIN_CHILDREN[0], str(part.least))]
        if parent:
            stated.append((keys.PARENT[0], parent))
        if part.in_one_rack:
            stated.append((keys.TOPOLOGY[0], RACK))
        self.world.declare(pod_group(part.name, None, gang_metadata=tuple(stated)))
        for child in part.children:
            self._declare(child, part.name)

    def _create(self, part: TreePart, parent: str, *, but: set[str]) -> None:
        topology = RACK if part.in_one_rack else ""
        for name, gpus in part.members.items():
            if name not in but and name not in self.created:
                stated = gang_metadata(
                    part.name, min_member=part.least, parent=parent, topology=topology
                )
                self.world.create(pod(name, gpus=gpus, gang_metadata=stated))
                self.created.add(name)
        for child in part.children:
            self._create(child, part.name, but=but)

    # --- what is wrong ---------------------------------------------------------------------------

    def _wrong(self, when: str, within_s: float = SETTLED_S) -> Iterator[str]:
        self.world.advance(within_s)
        bound = {name: at for name, at in self.world.bound().items() if name in self.created}
        for what in (*self._broken(bound), *self._waiting(bound)):
            yield f"{when}: {what}"

    def free(self, bound: dict[str, str]) -> Free:
        """Free GPUs of each node."""
        free = [*self.case.gpus]
        for name in self.others:
            at, gpus = self.case.taken[name]
            free[at] -= gpus
        gpus_of = self.case.tree.pods()
        for name, where in bound.items():
            free[int(where[1:])] -= gpus_of[name]
        return tuple(free)

    def _broken(self, bound: dict[str, str]) -> Iterator[str]:
        if min(self.free(bound)) < 0:
            yield f"a node is over-full: {bound}"
        for part in self.case.tree.every():
            if part.has_something(bound) and not part.is_whole(bound):
                yield f"{part.name} has less than its minimum: {bound}"
            if part.in_one_rack and len(self._racks(part, bound)) > 1:
                yield f"{part.name} is in two racks: {bound}"

    def _racks(self, part: TreePart, bound: dict[str, str]) -> set[str]:
        return {self.case.racks[int(bound[name][1:])] for name in part.pods() if name in bound}

    def _waiting(self, bound: dict[str, str]) -> Iterator[str]:
        """Yield parts without anything, and members above a minimum, that fit by themselves."""
        everywhere = frozenset(range(len(self.case.gpus)))
        yield from self._fits(self.case.tree, everywhere, bound, Choices(self.case))

    def _fits(
        self, part: TreePart, nodes: Nodes, bound: dict[str, str], choices: Choices
    ) -> Iterator[str]:
        domains = self.case.within(nodes, in_one_rack=part.in_one_rack)
        if part.in_one_rack and (racks := self._racks(part, bound)):
            domains = [
                each & nodes for each in domains if {self.case.racks[n] for n in each} == racks
            ]
        for domain in domains:
            yield from self._fits_in(part, domain, bound, choices)

    def _fits_in(
        self, part: TreePart, nodes: Nodes, bound: dict[str, str], choices: Choices
    ) -> Iterator[str]:
        free = self.free(bound)
        if not part.is_whole(bound):
            # A part that has started and lost its minimum is looked at by `_broken`.
            if not part.has_something(bound) and choices.after(part, free, nodes, self.created):
                yield f"{part.name} fits and waits: bound {bound}, free {free}"
            return
        for child in part.children:
            yield from self._fits(child, nodes, bound, choices)
        for name, gpus in part.members.items():
            waits = name in self.created and name not in bound
            if waits and any(free[number] >= gpus for number in nodes):
                yield f"member {name} fits and waits: bound {bound}, free {free}"


def wrong(seed: int) -> list[str]:
    """What is wrong with the tree of a seed: the first thing, or what was raised."""
    try:
        return [next(TreePlay(seed).play())]
    except StopIteration:
        return []
    except Exception as error:  # whatever is raised for a tree is what is looked for
        return [f"raised {type(error).__name__}: {error}"]


def main() -> int:
    """Play many trees; the number of those with something wrong is the exit code, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--most-s", type=float, default=float("inf"), help="stop after so many seconds"
    )
    asked = parser.parse_args()

    begun_s = time.monotonic()
    played = failed = 0
    for seed in range(asked.first, asked.first + asked.trees):
        if time.monotonic() - begun_s > asked.most_s:
            break
        played += 1
        for what in wrong(seed):
            failed += 1
            sys.stdout.write(f"seed {seed}: {what}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{played} trees from seed {asked.first} on, {failed} with something wrong\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
