"""Homes: a replacement is never outside a home that had room (semantics L3)."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.rounds import place_alone
from gangsched.model.gang import Placement
from gangsched.model.objects import Node, Pod
from tests import builders
from tests.sizes import of_size

RACK = "topology.kubernetes.io/rack"
ZONE = "topology.kubernetes.io/zone"
GPUS = 4
CASES = of_size(80, 10_000)


@dataclass
class Site:
    """Nodes in racks and zones, of which each has some GPUs left; `homes` are the labels that all
    members of the gang share, the closest level first.
    """

    nodes: list[Node]
    members: list[Node]
    left: Counter[str] = field(default_factory=Counter)

    def homes(self) -> list[dict[str, str]]:
        """The domains that all members share, the closest first."""
        found = []
        for labels in ((RACK, ZONE), (ZONE,)):
            of_members = {
                tuple(node.labels.get(label, "") for label in labels) for node in self.members
            }
            if len(of_members) == 1 and all(*of_members):
                found.append(dict(zip(labels, *of_members, strict=True)))

        return found


def site_of(dice: random.Random) -> Site:
    """A random site. Racks of both zones have the same names, so that only both labels tell them
    apart.
    """
    where = list(itertools.product("yz", "ab"))
    where += [
        (dice.choice("yz"), dice.choice(["a", "b", "c", ""])) for _ in range(dice.randint(0, 6))
    ]

    nodes = []
    for number, (zone, rack) in enumerate(where):
        labels = {ZONE: zone, RACK: rack} if rack else {ZONE: zone}
        nodes.append(builders.node(f"n{number}", GPUS, labels=labels))

    first = dice.choice(nodes)
    close = [node for node in nodes if node.labels.get(RACK) == first.labels.get(RACK)]
    members = dice.choices(close if dice.random() < 0.7 else nodes, k=dice.randint(1, 3))
    return Site(nodes, members)


def replacements_of(dice: random.Random) -> list[Pod]:
    """Waiting members of one to four sizes."""
    return [
        builders.pod(f"w{number}", gpus=dice.randint(1, GPUS))
        for number in range(dice.randint(1, 5))
    ]


def placed_by(site: Site, pods: Sequence[Pod], dice: random.Random) -> list[Placement]:
    """Where the core places the members; `site.left` becomes what no other pod uses."""
    others = [
        (builders.pod(f"o{number}", gpus=dice.randint(1, GPUS)), node.name)
        for number, node in enumerate(site.nodes)
        if dice.random() < 0.6
    ]
    site.left.update({node.name: GPUS for node in site.nodes})
    for pod, node in others:
        site.left[node] -= dict(pod.shape.requests)[builders.GPU]

    gang = builders.gang(
        "ns/g",
        pods,
        bound=len(site.members),
        nodes=tuple(node.name for node in site.members),
        satisfied=True,
    )
    ledger = Ledger(builders.snapshot(site.nodes, others))
    attempt = PlacementAttempt(builders.group(gang), ledger)
    return list(place_alone(pods, attempt).placements)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(CASES))
def test_no_replacement_is_outside_a_home_that_had_room(seed: int) -> None:
    """L3: room that is left at the end was there when the member was tried, since nothing ends."""
    dice = random.Random(seed)
    site = site_of(dice)
    pods = replacements_of(dice)
    placed = placed_by(site, pods, dice)

    for placement in placed:
        site.left[placement.node] -= dict(placement.pod.shape.requests)[builders.GPU]

    labels = {node.name: node.labels for node in site.nodes}
    for placement in placed:
        asked = dict(placement.pod.shape.requests)[builders.GPU]
        for home in site.homes():
            if home.items() <= labels[placement.node].items():
                break

            roomy = [
                name
                for name, of_node in labels.items()
                if home.items() <= of_node.items() and site.left[name] >= asked
            ]
            assert not roomy, (
                f"seed {seed}: {placement.pod.name} is on {placement.node}, not {home}"
            )

    closest = next(iter(site.homes()), {})
    for placement in placed:
        is_told = bool(placement.outside)
        assert is_told == (not closest.items() <= labels[placement.node].items()), f"seed {seed}"
