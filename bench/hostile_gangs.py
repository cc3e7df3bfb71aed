"""Hostile gangs, and the clusters that they meet, for `bench.hostile`.

Invariant: a gang is drawn from its number alone, so that one that took long can be drawn again.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangsched.api import keys
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.gang import Mode
from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.inter_pod import (
    HostPort,
    InterPodConstraints,
    PodTerm,
    Requirement,
    Spread,
    WeightedPodTerm,
)
from gangsched.model.objects import (
    ClaimUse,
    Node,
    NodeSelectorTerm,
    Phase,
    Pod,
    PreferredTerm,
    Shape,
    Taint,
    Toleration,
)
from gangsched.model.storage import Claim, CsiNode, StorageClass, Volume
from tests import builders
from tests.world import EPOCH_S

GIB = 2**30
RACK, ZONE, HOSTNAME = "topology/rack", "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SIZES = (16, 200, 1_000, 5_000, 5_000)
RAN_S, RUNS_S = 600, 4_200
"""For how long all that runs has run, and may run."""
LAYERS = (
    (SliceLayer(1, RACK),),
    (SliceLayer(2, HOSTNAME),),
    (SliceLayer(4, RACK),),
    (SliceLayer(64, ZONE),),
    (SliceLayer(16, ZONE), SliceLayer(4, RACK)),
    (SliceLayer(8, ZONE), SliceLayer(4, RACK), SliceLayer(2, HOSTNAME)),
)


@dataclass(frozen=True, slots=True)
class Hostile:
    """One gang as its users create it, and what it was drawn as; `reserves` says whether room is
    reserved for it.
    """

    pods: Sequence[Pod]
    claims: Sequence[Claim]
    volumes: Sequence[Volume]
    budgets: Sequence[PodDisruptionBudget]
    text: str
    reserves: bool


def ground(size: int, dice: random.Random) -> tuple[list[Node], list[Pod]]:
    """Nodes of three kinds in racks and zones, and the pods of half of them."""
    nodes: list[Node] = []
    for n in range(size):
        labels = {
            RACK: f"r{n // 16}",
            ZONE: f"z{n % 3}",
            HOSTNAME: f"n{n:04}",
            "kind": "abc"[n % 3],
            "bay": f"b{n % 40}",
        }
        taints = (Taint("dedicated", f"t{n % 5}", "NoSchedule"),) if n % 10 == 9 else ()
        gpus = (8, 0, 4)[n % 3]
        cpu = (96_000, 32_000, 64_000)[n % 3]
        memory = 512 * GIB
        nodes.append(
            builders.node(
                f"n{n:04}", gpus, cpu_milli=cpu, memory_bytes=memory, labels=labels, taints=taints
            )
        )
    one, plain = builders.shape(1, 4_000, 8 * GIB), builders.shape(0, 4_000, 8 * GIB)
    pods = [
        builders.pod(
            f"run{n}",
            of=plain if n % 3 == 1 else one,
            uid=f"run{n}",
            node_name=f"n{n:04}",
            phase=Phase.RUNNING,
            priority=n % 3,
            labels={"app": f"a{n % 7}"},
            start_s=EPOCH_S - RAN_S,
            grace_s=1,
            run_time_metadata=((keys.DEADLINE, str(RUNS_S)),),
        )
        for n in range(0, size, 2)
    ]
    dice.shuffle(nodes)
    return nodes, pods


def lasting_storage(size: int) -> tuple[list[StorageClass], list[CsiNode]]:
    """The classes that claims name, and how many volumes each node takes."""
    classes = [
        StorageClass(name="waits", provisioner="csi.example", waits=True),
        StorageClass(name="static", provisioner="kubernetes.io/no-provisioner", waits=True),
    ]
    return classes, [CsiNode(f"n{n:04}", (("csi.example", 8),)) for n in range(size)]


def draw(size: int, dice: random.Random, *, slices: bool = False, trees: bool = False) -> Hostile:
    """A hostile gang for a cluster of that size; the same one with `slices` or as `trees`, but for
    these.
    """
    members = dice.choice((1, 8, 64, 256, 1_000, 2_000))
    shapes = min(members, dice.choice((1, 2, 10, 100, 1_000, 2_000)))
    impossible = dice.choice((0, 0, 1, 1, 5, members // 2, members))
    where = dice.choice(("first", "last", "anywhere"))
    spots = list(range(members))
    if where == "anywhere":
        dice.shuffle(spots)
    lost = frozenset(spots[:impossible] if where == "first" else spots[len(spots) - impossible :])
    features = frozenset(each for each in FEATURES if dice.random() < 0.3)
    kinds = [_shape(n, features, dice) for n in range(shapes)]
    drawn: list[tuple[Shape, tuple[ClaimUse, ...]]] = []
    claims: dict[str, Claim] = {}
    for n in range(members):
        kind = kinds[n % shapes]
        if n in lost:
            kind = _impossible(kind, n, dice)
        used: tuple[ClaimUse, ...] = ()
        if "claims" in features:
            name = f"c{n if dice.random() < 0.9 else n // 8}"
            used = (ClaimUse(name),)
            claims[name] = Claim(
                namespace=builders.NAMESPACE,
                name=name,
                uid=name,
                storage_class=dice.choice(("waits", "static")),
                access_modes=("ReadWriteOnce",),
                request_bytes=GIB,
                selected_node=None,
            )
        drawn.append((kind, used))
    topology = dice.choice((RACK, ZONE)) if "topology" in features else ""
    gangs = dice.choice((1, 1, 1, 3))
    mode = dice.choice((Mode.STRICT, Mode.STRICT, Mode.NON_STRICT))
    plain = dice.random() < 0.1
    least = dice.choice((1.0, 1.0, 0.5))
    priority = 1_000 if dice.random() < 0.3 else 0
    volumes = _volumes(size, len(claims), dice)
    reserves = dice.random() < 0.5
    budgets = dice.choice((0, 0, 20, 200, 1_000)) if priority else 0
    children = dice.choice((2, 3, 8, 32, 128)) if trees and not plain else 0
    gangs = children or gangs
    names = [f"g{index}" for index in range(min(gangs, members))]
    layers = dice.choice(LAYERS) if slices and not plain else ()
    together = () if children else names
    stated = [
        (
            ()
            if plain
            else _stated(
                name, math.ceil(len(drawn[index::gangs]) * least), mode, together, topology, layers
            )
        )
        for index, name in enumerate(names)
    ]
    tree = ""
    if children:
        of_tree = builders.gang_metadata(
            parent="svc", min_children=str(dice.choice((1, (len(names) + 1) // 2, len(names))))
        )
        of_levels = [((keys.TOPOLOGY[0], level),) if level else () for level in ("", RACK, ZONE)]
        levels = of_levels if dice.random() < 0.5 else [dice.choice(of_levels)]
        stated = [
            (*child, *of_tree, *(() if topology else dice.choice(levels))) for child in stated
        ]
        tree = f", {len(names)} children: {dict(of_tree)}, levels {levels}"
    pods = [
        builders.pod(
            f"p{n:04}",
            of=kind,
            uid=f"p{n:04}",
            labels={"app": "x", "n": str(n % 50)},
            claims=used,
            priority=priority,
            gang_metadata=stated[n % gangs],
        )
        for n, (kind, used) in enumerate(drawn)
    ]
    text = (
        f"{size} nodes, {members} members of {shapes} shapes, {impossible} impossible ({where}),"
        f" {mode.value}, {gangs} gangs, plain={plain}, least={least}, priority={priority},"
        f" {budgets} budgets, {', '.join(sorted(features)) or 'no features'}"
        + tree
        + (
            f", slices of {' and '.join(f'{layer.size} in {layer.topology}' for layer in layers)}"
            if layers
            else ""
        )
    )
    return Hostile(pods, tuple(claims.values()), volumes, _budgets(budgets), text, reserves)


def _stated(
    name: str,
    least: int,
    mode: Mode,
    names: Sequence[str],
    topology: str,
    layers: Sequence[SliceLayer],
) -> keys.GangMetadata:
    """What each pod of a gang states."""
    groups = [f"{builders.NAMESPACE}/{each}" for each in names] if len(names) > 1 else ()
    metadata = builders.gang_metadata(name, min_member=least, mode=mode.value, groups=groups)
    if layers:
        text = json.dumps([layer._asdict() for layer in layers])
        metadata = (*metadata, (keys.SLICES[0], text))
    return (*metadata, *(((keys.TOPOLOGY[0], topology),) if topology else ()))


def _budgets(number: int) -> tuple[PodDisruptionBudget, ...]:
    """Budgets over a part of all that runs each, of which some are over the same pods."""
    return tuple(
        PodDisruptionBudget(
            namespace=builders.NAMESPACE,
            name=f"b{n:04}",
            selector=(
                (Requirement("app", "In", (f"a{n % 7}",)),)
                if n < 7
                else (Requirement("app", "In", (f"b{n}",)),)
            ),
            allowed=1_000_000 if n % 2 else 3,
        )
        for n in range(number)
    )


FEATURES = (
    "affinity",
    "anti",
    "claims",
    "existing",
    "gpus",
    "host-spread",
    "labels",
    "names",
    "ports",
    "prefers",
    "rack-spread",
    "soft",
    "topology",
)


def _shape(n: int, features: frozenset[str], dice: random.Random) -> Shape:
    app = (Requirement("app", "In", ("x",)),)
    own = (Requirement("n", "In", tuple(str(each) for each in range(n % 50, 50))),)
    spread, anti, near, preferred, soft = [], [], [], [], []
    if "rack-spread" in features:
        spread += [
            Spread(
                topology_key=RACK, max_skew=dice.choice((1, 2, 5)), selector=app, honor_taints=True
            )
        ]
    if "host-spread" in features:
        spread += [
            Spread(topology_key=HOSTNAME, max_skew=1, selector=own),
            Spread(topology_key=ZONE, max_skew=1, selector=app),
        ]
    if "anti" in features:
        anti += [PodTerm(dice.choice((HOSTNAME, RACK)), own)]
    if "existing" in features:
        anti += [
            PodTerm(HOSTNAME, (Requirement("app", "In", (f"a{n % 7}",)),), namespace_selector=())
        ]
    if "affinity" in features:
        near += [PodTerm(ZONE, app), PodTerm("kind", app)]
    if "prefers" in features:
        preferred += [WeightedPodTerm(dice.choice((-50, 50)), PodTerm(RACK, own)) for _ in range(4)]
    if "soft" in features:
        soft += [Spread(topology_key=key, max_skew=1, selector=app) for key in (HOSTNAME, RACK)]
    ports = (HostPort("TCP", 8_000 + n % 100),) if "ports" in features else ()
    required = None
    if "labels" in features:
        required = tuple(
            NodeSelectorTerm(
                (
                    Requirement("bay", "NotIn", (f"b{n % 40}", f"b{k}")),
                    Requirement("kind", "Exists"),
                ),
                (),
            )
            for k in range(5)
        )
    if "names" in features:
        names = tuple(f"n{dice.randrange(5_000):04}" for _ in range(200))
        required = (
            *(required or ()),
            NodeSelectorTerm((), (Requirement("metadata.name", "NotIn", names[:1]),)),
        )
    preferences = (
        (PreferredTerm(10, NodeSelectorTerm((Requirement("bay", "In", (f"b{n % 40}",)),), ())),)
        if "labels" in features
        else ()
    )
    gpus = dice.choice((0, 1, 2, 8)) if "gpus" in features else 0
    return Shape(
        requests=builders.amounts(gpus=gpus, cpu_milli=1_000 + n, memory_bytes=GIB + n, pods=1),
        required=required,
        preferred=preferences,
        tolerations=(Toleration("dedicated", "Equal", f"t{n % 5}", "NoSchedule"),),
        inter_pod=(
            InterPodConstraints(
                ports=ports,
                affinity=tuple(near),
                anti_affinity=tuple(anti),
                spread=tuple(spread),
                preferred=tuple(preferred),
                soft_spread=tuple(soft),
            )
            if spread or anti or near or preferred or soft or ports
            else None
        ),
    )


def _impossible(kind: Shape, n: int, dice: random.Random) -> Shape:
    """The shape with something that no node has."""
    requests = dict(kind.requests)
    match dice.randrange(3):
        case 0:
            requests["cpu"] = 10_000_000 + n
        case 1:
            return replace(kind, node_selector=(("kind", f"none-{n}"),))
        case _:
            requests["cpu"] = 97_000 + n
    return replace(kind, requests=tuple(requests.items()))


def _volumes(size: int, claims: int, dice: random.Random) -> list[Volume]:
    """Volumes that some of the claims may have, on nodes of one kind each."""
    return [
        Volume(
            name=f"v{n}",
            uid=f"v{n}",
            storage_class="static",
            capacity_bytes=GIB * dice.choice((1, 2)),
            access_modes=("ReadWriteOnce",),
            available=True,
            required=(NodeSelectorTerm((Requirement("kind", "In", ("abc"[n % 3],)),), ()),),
        )
        for n in range(min(size, claims))
    ]
