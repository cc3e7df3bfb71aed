"""Random histories in which labels of nodes change while gangs wait, hold and keep room, and run.

Each seed draws nodes with racks, zones and GPU products, and gangs that require these: for all of
their members, for those with accelerators, for slices, alone, in a group, or below a parent that
requires one. Binds fail, members go and come, nodes lose labels and get others. No verdict may be
one that the verifier refuses: a world raises what sets a group aside. Played by `python -m
tests.properties.moved_labels --seeds 5000`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import dataclass

from gangsched.api import keys
from gangsched.model.gpu_policy import PRODUCT_LABEL, TOPOLOGY_KEYS
from gangsched.model.objects import Phase
from gangsched.model.protocol import Bind
from tests.builders import gang_metadata, node, pod, pod_group
from tests.world import World

STEPS = 18
GPUS = 4
_, RACK, ZONE = TOPOLOGY_KEYS
VALUES = {RACK: ("r", "s"), ZONE: ("x", "y"), PRODUCT_LABEL: ("A100", "H100")}
"""The values of each label."""
POLICIES = ("", "", "", "only-waiting", "waiting-and-running")
EVENTS = {
    "created": 3,
    "replaced": 3,
    "added": 2,
    "relabelled": 6,
    "filled": 2,
    "freed": 2,
    "binds_fail": 2,
}
"""How often each event comes."""


@dataclass(frozen=True)
class GangCase:
    """What the pods of one gang state."""

    metadata: tuple[tuple[str, str], ...]
    is_indexed: bool
    gpus: int


class MovedLabels:
    """The history of one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World(preempts=self.dice.random() < 0.3)
        self.world.fate = self._fate
        self.failing = 0.0
        self.created = 0
        self.gangs: dict[str, GangCase] = {}
        self.labels: dict[str, dict[str, str]] = {}

        for number in range(self.dice.randint(3, 7)):
            self._label(f"n{number}", self._drawn())

        #: By pair of gangs whether they are a group, or below which parent.
        self.pairs = [self.dice.choice(("", "", "group", "tree")) for _ in range(STEPS)]

    def play(self) -> None:
        """Play it to its end; whatever would set a group aside is raised."""
        names = list(EVENTS)
        weights = list(EVENTS.values())
        for _ in range(STEPS):
            for _ in range(self.dice.choice((1, 1, 2, 3))):
                (event,) = self.dice.choices(names, weights)
                getattr(self, f"_{event}")()

            self.world.advance(self.dice.choice((0.0, 0.0, 0.5, 4.0, 35.0)))

    def _fate(self, order: object) -> str:
        if isinstance(order, Bind) and self.dice.random() < self.failing:
            return "failed"

        return "bound"

    # --- nodes -----------------------------------------------------------------------------------

    def _drawn(self) -> dict[str, str]:
        labels = {}
        for key, values in VALUES.items():
            if self.dice.random() < 0.9:
                labels[key] = self.dice.choice(values)

        return labels

    def _label(self, name: str, labels: dict[str, str], *, closed: bool = False) -> None:
        self.labels[name] = labels
        self.world.add_nodes(node(name, GPUS, labels=labels, unschedulable=closed))

    def _relabelled(self) -> None:
        name = self._a_node()
        labels = self._drawn()
        if self.dice.random() < 0.5:
            key = self.dice.choice(list(VALUES))
            value = labels.get(key)
            labels = {**self.labels[name]}
            labels.pop(key, None)
            if value is not None:
                labels[key] = value

        self._label(name, labels, closed=self.dice.random() < 0.15)

    def _filled(self) -> None:
        """Another scheduler binds a pod."""
        self.created += 1
        self.world.create(
            pod(
                f"x-{self.created}",
                gpus=self.dice.randint(1, GPUS),
                node_name=self._a_node(),
                scheduler_name="x",
                phase=Phase.RUNNING,
            )
        )

    def _freed(self) -> None:
        others = [other for other in self.world.pods.values() if other.name.startswith("x-")]
        if others:
            self.world.delete(self.dice.choice(others))

    def _a_node(self) -> str:
        return self.dice.choice(list(self.labels))

    # --- gangs -----------------------------------------------------------------------------------

    def _binds_fail(self) -> None:
        self.failing = self.dice.choice((0.0, 0.0, 0.3, 0.7))

    def _created(self) -> None:
        dice = self.dice
        number = len(self.gangs)
        name = f"g{number}"
        slices = dice.choice(([], [], *self._slices()))
        least = max(dice.randint(1, 6), *(size for size, _ in slices), 1)
        more = []
        if slices:
            layers = [{"size": size, "topology": key} for size, key in slices]
            more.append((keys.SLICES[0], json.dumps(layers)))

        if dice.random() < 0.5:
            more.append((keys.GPU_PRODUCT[0], "same"))

        pair = self.pairs[number // 2 % len(self.pairs)]
        parent = f"t{number // 2}" if pair == "tree" else ""
        if parent:
            self._declare(parent)

        stated = gang_metadata(
            name,
            min_member=least,
            mode=dice.choice(("Strict", "NonStrict")),
            policy=dice.choice(POLICIES),
            topology=dice.choice(("", "", RACK, ZONE, f"{RACK},{ZONE}")),
            groups=[f"ns/{name}", f"ns/g{number ^ 1}"] if pair == "group" else (),
            parent=parent,
        )
        metadata = tuple(sorted((*stated, *more)))
        self.gangs[name] = GangCase(metadata, dice.random() < 0.6, dice.choice((1, 1, 2)))

        for index in range(max(1, least + dice.choice((-1, 0, 0, 0, 1, 3)))):
            self._create(name, index)

    def _slices(self) -> list[list[tuple[int, str]]]:
        size = self.dice.choice((2, 3))
        key = self.dice.choice(list(VALUES))
        return [[(size, key)], [(4, ZONE), (2, RACK)]]

    def _declare(self, parent: str) -> None:
        stated = [(keys.MIN_CHILDREN[0], str(self.dice.randint(0, 2)))]
        if self.dice.random() < 0.6:
            stated.append((keys.TOPOLOGY[0], self.dice.choice((RACK, ZONE))))

        self.world.declare(pod_group(parent, None, gang_metadata=tuple(sorted(stated))))

    def _create(self, gang: str, index: int) -> None:
        case = self.gangs[gang]
        gpus = case.gpus if self.dice.random() < 0.85 else self.dice.choice((0, 1, 3))
        self.created += 1
        self.world.create(
            pod(
                f"{gang}-{index}",
                uid=f"{gang}.{index}.{self.created}",
                gpus=gpus,
                cpu_milli=100,
                index=index if case.is_indexed else -1,
                gang_metadata=case.metadata,
            )
        )

    def _added(self) -> None:
        """A gang gets one member more."""
        if self.gangs:
            gang = self.dice.choice(list(self.gangs))
            names = {member.name for member in self.world.pods.values()}
            indexes = (index for index in range(100) if f"{gang}-{index}" not in names)
            self._create(gang, next(indexes))

    def _replaced(self) -> None:
        """A member is deleted, and mostly another one is created for it."""
        members = [member for member in self.world.pods.values() if member.name[0] == "g"]
        if not members:
            return

        lost = self.dice.choice(members)
        self.world.delete(lost)
        if self.dice.random() < 0.8:
            gang, index = lost.name.split("-")
            self._create(gang, int(index))


def wrong(seed: int) -> list[str]:
    """What set a group aside in the history of a seed, if anything did."""
    try:
        MovedLabels(seed).play()
    except Exception as error:  # whatever is raised for a gang is what is looked for
        return [f"seed {seed} (python -m {__spec__.name} --first {seed} --seeds 1): {error!r}"]

    return []


def main() -> int:
    """Play many seeds; exit status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()

    failed = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        for what in wrong(seed):
            failed += 1
            print(what, flush=True)

    print(f"{asked.seeds} histories from seed {asked.first} on, {failed} with something wrong")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
