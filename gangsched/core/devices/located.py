"""Requests of pods for devices, the places of these devices, and questions about several places at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from msgspec.structs import replace

from gangsched.core.devices.device_faults import DeviceFault
from gangsched.core.devices.pools import Pool, PoolDevice
from gangsched.core.devices.questions import Questions
from gangsched.core.devices.views import ClaimPlace, merged
from gangsched.model.devices import ALL, DeviceClaim, DeviceClass
from gangsched.model.snapshot import Bools, Ints, NodeTable
from kubernetes_cel.selectors import SelectorAnswers

EVERY_NODE: Final = ""
"""In place of a node: devices that several nodes reach."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKind:
    """Requests of a pod's claims, without names: claim number n is named `#n`. Equal kinds are the
    same object.
    """

    claims: tuple[DeviceClaim, ...]

    def named(self, text: str, claims: Sequence[str]) -> str:
        """Replace the placeholders `#n` in a message with the names of the pod's claims."""
        # `#1` is also the beginning of `#10`
        for number, name in reversed(list(enumerate(claims))):
            text = text.replace(f"claim /#{number}", f"claim {name}")

        return text


class NodeRoom(NamedTuple):
    """Room of a node for one kind of pods: `pods` of them can have devices at the same time.
    `ended`: the search ended early, so more may fit. `fault`: why no such pod can get devices, ""
    if it can.
    """

    pods: int
    ended: bool = False
    fault: str = ""
    unsupported: bool = False


Located: TypeAlias = "tuple[DeviceKind, ClaimPlace]"
"""Claims of a pod, and where they must be usable."""


class PlacedClaims(NamedTuple):
    """Claims for which the plan chooses devices that are usable on all of `nodes`: the claims of
    one pod, or one claim that several pods share. `order` is their position in the plan.
    """

    order: int
    uid: str
    kind: DeviceKind
    nodes: tuple[int, ...]


@dataclass(slots=True, eq=False)
class PlanColumn:
    """Rooms of one kind by node in one plan. `seen` and `joint_seen` are the numbers of moves that
    they include.

    `is_pure`: all devices that the kind may use there belong to pools that several nodes can use.
    """

    room: Ints
    is_pure: Bools
    seen: int
    joint_seen: int


@dataclass(slots=True, eq=False)
class KindColumn:
    """Rooms of one kind by node; `array` has them for the nodes of `table`, as of change number
    `changes`.

    `faults` are nodes that have or had an error. `joint` are the rooms of places with pools of
    several nodes, by node. `uses` says whether the kind may use devices of a place.
    """

    rooms: dict[str, NodeRoom] = field(default_factory=dict)
    joint: dict[str, dict[ClaimPlace, NodeRoom]] = field(default_factory=dict)
    uses: dict[str, dict[ClaimPlace, bool]] = field(default_factory=dict)
    faults: set[str] = field(default_factory=set)
    table: NodeTable | None = None
    array: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    changes: int = 0


def matcher(
    kinds: Iterable[DeviceKind],
    classes: Mapping[str, DeviceClass],
    answers: SelectorAnswers,
) -> Callable[[PoolDevice], bool]:
    """Return a function that is True for devices that match a request of these kinds; an error of a
    selector counts as a match.
    """
    requests = set()
    for kind in kinds:
        for claim in kind.claims:
            for group in claim.requests:
                for request in group:
                    requests.add(request)

    sources = set()
    for device_request in requests:
        if device_request.class_name in classes:
            sources.add((*classes[device_request.class_name].selectors, *device_request.selectors))

    def matches(device: PoolDevice) -> bool:
        seen = device.seen
        # A device whose versions cannot be parsed is kept: kube-scheduler reports its error for the
        # pod.
        return isinstance(seen, str) or any(
            all(answers.answer(each, seen) for each in own) for own in sources
        )

    return matches


def questions_about(
    items: Sequence[Located],
    pools_at: Callable[[ClaimPlace, Iterable[DeviceKind]], Sequence[Pool]],
    classes: Mapping[str, DeviceClass],
    answers: SelectorAnswers,
) -> tuple[Questions, list[tuple[DeviceClaim, ...]]]:
    """Questions about the devices of all these places, and the claims of each item, restricted to
    the devices of its place.
    """
    places = dict.fromkeys(place for _, place in items)
    if len(places) == 1:
        pools = pools_at(items[0][1], dict.fromkeys(kind for kind, _ in items))
        return Questions(pools, classes, answers), [kind.claims for kind, _ in items]

    # A claim is known by its object: one of its own for each place.
    claims = {
        (kind, place): tuple(map(replace, kind.claims)) for kind, place in dict.fromkeys(items)
    }
    seen = {
        place: pools_at(place, dict.fromkeys(kind for kind, at in items if at == place))
        for place in places
    }
    pools_of = {id(claim): seen[place] for (_, place), own in claims.items() for claim in own}

    return Questions(merged(seen.values()), classes, answers, pools_of), [
        claims[item] for item in items
    ]


def may_use(questions: Questions, claim: DeviceClaim) -> bool:
    """Whether a request matches a device; also True on an error, if there are devices."""
    try:
        return any(
            # A request for all devices fails on such a pool, so the pod is affected even though
            # nothing matches.
            (
                asked.request.mode == ALL
                and any(pool.incomplete or pool.invalid for pool in questions.pools)
            )
            or any(questions.matches(asked, at, claim) for at in range(len(questions.devices)))
            for alternatives in questions.asked(claim)
            for asked in alternatives
        )
    except DeviceFault:
        return bool(questions.pools)


def home(placed: Sequence[Located]) -> str:
    """The only node whose devices these pods may use; EVERY_NODE if they may use devices of several
    nodes.
    """
    places = {place for _, place in placed}
    if len(places) == 1 and not any(place.views for place in places):
        return next(iter(places)).node

    return EVERY_NODE
