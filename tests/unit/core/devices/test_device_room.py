"""Room for pods with claims on one node, beside all ways to choose devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random

import pytest

from gangsched.core.devices.device_faults import DeviceFault, DevicesUnsupported
from gangsched.core.devices.device_room import DeviceRooms
from gangsched.core.devices.held import Held, Use
from gangsched.core.devices.pools import SliceIndex
from gangsched.core.devices.questions import Questions
from gangsched.core.devices.search import MOST_STEPS, DeviceSearch
from gangsched.core.devices.states import MOST_REQUESTS, States
from gangsched.model.devices import (
    Attribute,
    Capacity,
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.objects import Node
from kubernetes_cel.selectors import SelectorAnswers
from tests.sizes import of_size

MEMORY, SHARE = 80, 30
CLASSES = {"gpu": DeviceClass("gpu")}
Choice = tuple[tuple[DeviceRequest, tuple[int, ...]], ...]
"""What a claim has: the alternative and the devices of each request."""


def slices(*devices: Device, counters: int = 0) -> list[ResourceSlice]:
    sets = tuple((f"c{number}", (("mem", counters),)) for number in range(2)) if counters else ()
    common = {
        "driver": "d",
        "pool": "p",
        "slices": 1 + bool(sets),
        "scope": NodeScope(everywhere=True),
    }
    found = [ResourceSlice(name="a", devices=devices, **common)]  # type: ignore[arg-type]
    return [*found, ResourceSlice(name="b", counters=sets, **common)] if sets else found  # type: ignore[arg-type]


def questions(parts: Sequence[ResourceSlice]) -> Questions:
    return Questions(SliceIndex(parts).pools(Node(name="n")), CLASSES, SelectorAnswers())


def request(count: int = 1, **more: object) -> DeviceRequest:
    return DeviceRequest(**{"name": "r", "class_name": "gpu", "count": count, **more})  # type: ignore[arg-type]


def claim(*requests: DeviceRequest, constraints: tuple[DeviceConstraint, ...] = ()) -> DeviceClaim:
    return DeviceClaim(
        namespace="ns", name="c", requests=tuple((r,) for r in requests), constraints=constraints
    )


class Small:
    """A random node of at most six devices, and a claim for some of them."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.parted = rng.random() < 0.4
        self.devices = [self._device(number) for number in range(rng.randrange(1, 7))]
        self.parts = slices(*self.devices, counters=MEMORY * self.parted)
        self.taken = {at for at in range(len(self.devices)) if rng.random() < 0.15}
        self.claim = self.some_claim()

    def _device(self, number: int) -> Device:
        rng = self.rng
        attributes: dict[str, Attribute] = {
            "model": ("string", rng.choice("aab")),
            "link": ("int", rng.randrange(2)),
        }
        if rng.random() < 0.15:
            del attributes["link"]
        shared = rng.random() < 0.2
        counters = ((rng.choice(["c0", "c1"]), "mem"), rng.choice([20, 40, 80]))
        return Device(
            name=f"g{number}",
            attributes=attributes,
            shared=shared,
            capacity={"m": Capacity(MEMORY)} if shared else {},
            counters=(counters,) if self.parted and rng.random() < 0.8 else (),
        )

    def some_claim(self) -> DeviceClaim:
        rng = self.rng
        requests = []
        for number in range(rng.choice([1, 1, 2])):
            name = f"r{number}"
            several = rng.choice([1, 1, 2])
            parent = name if several > 1 else ""
            requests.append(
                tuple(
                    self._request(f"s{each}" if parent else name, parent) for each in range(several)
                )
            )
        constraints = []
        if rng.random() < 0.4:
            some = rng.choice([(), ("r0",)])
            constraints.append(
                DeviceConstraint(rng.choice(["d/link", "d/model"]), rng.random() < 0.4, some)
            )
        return DeviceClaim(
            namespace="ns", name="c", requests=tuple(requests), constraints=tuple(constraints)
        )

    def _request(self, name: str, parent: str) -> DeviceRequest:
        rng = self.rng
        source = rng.choice(
            ["", "", 'device.attributes["d"].model == "a"', 'device.attributes["d"].model == "b"']
        )
        amounts = (("m", SHARE),) if rng.random() < 0.3 else ()
        selectors = (source,) if source else ()
        return request(
            rng.choice([1, 1, 2, 3]), name=name, parent=parent, selectors=selectors, amounts=amounts
        )

    def held(self) -> Held:
        results = []
        for at in self.taken:
            device = self.devices[at]
            share = "s" if device.shared else ""
            results.append(
                DeviceResult(
                    "r",
                    ("d", "p", device.name),
                    share=share,
                    amounts=(("m", SHARE),) if share else (),
                )
            )
        return Held(results)

    # What follows knows nothing of the search: all choices of all pods, and whether they go
    # together.

    def most(
        self, pods: Sequence[DeviceClaim], chosen: tuple[tuple[DeviceClaim, Choice], ...] = ()
    ) -> int:
        """How many of the pods, from the first on, can have devices together."""
        if len(chosen) == len(pods):
            return len(pods)
        asked = pods[len(chosen)]
        more = ((*chosen, (asked, choice)) for choice in self._choices(asked.requests))
        return max(
            (self.most(pods, each) for each in more if self._together(each)), default=len(chosen)
        )

    def _choices(self, requests: Sequence[Sequence[DeviceRequest]]) -> Iterator[Choice]:
        if not requests:
            yield ()
            return
        for alternative in requests[0]:
            for places in combinations(range(len(self.devices)), alternative.count):
                for rest in self._choices(requests[1:]):
                    yield ((alternative, places), *rest)

    def _together(self, chosen: Sequence[tuple[DeviceClaim, Choice]]) -> bool:
        uses: Counter[int] = Counter(dict.fromkeys(self.taken, 1))
        amounts: Counter[int] = Counter(dict.fromkeys(self.taken, SHARE))
        for asked, choice in chosen:
            for alternative, places in choice:
                for at in places:
                    model = self.devices[at].attributes["model"][1]
                    if any(f'== "{model}"' not in source for source in alternative.selectors):
                        return False
                    if alternative.amounts and not self.devices[at].shared:
                        return False
                    uses[at] += 1
                    amounts[at] += SHARE if alternative.amounts else MEMORY
            if not all(self._keeps(choice, constraint) for constraint in asked.constraints):
                return False
        if any(uses[at] > 1 and not device.shared for at, device in enumerate(self.devices)):
            return False
        if any(amounts[at] > MEMORY and device.shared for at, device in enumerate(self.devices)):
            return False
        left = Counter({"c0": MEMORY, "c1": MEMORY})
        for at in uses:
            left.subtract({group: amount for (group, _), amount in self.devices[at].counters})
        over = min(left.values()) < 0
        held = Counter({"c0": MEMORY, "c1": MEMORY})
        for at in self.taken:
            held.subtract({group: amount for (group, _), amount in self.devices[at].counters})
        # what others hold is more than there is: nothing with counters can be had
        if min(held.values()) < 0:
            new = [self.devices[at] for at in uses if at not in self.taken]
            return not any(device.counters for device in new)
        return not over

    def _keeps(self, choice: Choice, constraint: DeviceConstraint) -> bool:
        places = [
            at for alternative, each in choice if constraint.concerns(alternative) for at in each
        ]
        values = [
            self.devices[at].attributes.get(constraint.attribute.removeprefix("d/"))
            for at in places
        ]
        return None not in values and len(set(values)) == (
            len(values) if constraint.distinct else min(1, len(values))
        )


FOUND_LATER = (1718, 1956, 2084, 2813, 3051, 3762)
"""Nodes on which more pods than asked for fit a state that is met again with fewer pods
before it.
"""


TOLD_APART = (112, 188)
"""Two nodes on which different claims meet the same state."""


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_room_is_that_of_all_choices(block: int) -> None:
    """A10, A12: within the bound the room is exact, with partitions, shares, constraints and
    alternatives.
    """
    rooms = DeviceRooms()
    for seed in (
        *range(block * 100, block * 100 + of_size(30, 100)),
        *FOUND_LATER[block::4],
        *TOLD_APART,
    ):
        small = Small(seed)
        asked = questions(small.parts)
        use = Use(asked.pools, small.held())
        before = (list(use.shares), dict(use.left))
        found = rooms.room(asked, use, [small.claim], 4)
        assert (found.pods, found.ended) == (small.most([small.claim] * 4), False), seed
        assert (list(use.shares), dict(use.left)) == before
        assert not any(use.holders)


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_pods_of_several_kinds_have_devices_together_if_any_choice_lets_them(block: int) -> None:
    """A9: earlier pods' devices are chosen again for later ones."""
    for seed in range(block * 100, block * 100 + of_size(40, 100)):
        small = Small(seed)
        pods = [small.claim, *(small.some_claim() for _ in range(small.rng.choice([1, 2])))]
        asked = questions(small.parts)
        states = States(asked, Use(asked.pools, small.held()), pods, {})
        search = DeviceSearch(states, [[each] for each in pods])
        assert search.found() == (small.most(pods) == len(pods)), seed


def test_nodes_of_equal_state_are_searched_once() -> None:
    """A10: names, and attributes that nobody asks about, do not matter; order and other values in
    use do not either.
    """
    rooms = DeviceRooms()
    devices = [
        Device(name=f"g{number}", attributes={"uuid": ("string", str(number))})
        for number in range(8)
    ]
    steps = []
    for taken in ({0, 1}, {5, 6}, {7}, {0, 1}):
        asked = questions(slices(*devices))
        use = Use(asked.pools, Held(DeviceResult("r", ("d", "p", f"g{at}")) for at in taken))
        found = rooms.room(asked, use, [claim(request(2))], 10)
        assert (found.pods, found.ended) == (3, False)
        steps.append(found.steps)
    assert [each > 2 for each in steps] == [True, False, True, False]
    assert steps[1] == 2  # eight devices were asked about


def test_room_is_remembered_for_each_kind_of_pod() -> None:
    """A10: two devices of one model, and two of different models, are asked of the same state of
    devices.
    """
    rooms = DeviceRooms()
    asked = questions(
        slices(
            *(Device(name=f"g{number}", attributes={"m": ("string", "a")}) for number in range(4))
        )
    )
    for distinct, expected in ((False, 2), (True, 0), (False, 2)):
        kind = claim(request(2), constraints=(DeviceConstraint("d/m", distinct),))
        assert rooms.room(asked, Use(asked.pools, Held()), [kind], 10).pods == expected


def test_counters_that_are_left_are_part_of_the_state() -> None:
    """A10: the same partitions of a larger GPU have more room; counters of two GPUs are not added
    up.
    """
    rooms = DeviceRooms()
    parts = [Device(name=f"g{number}", counters=((("c0", "mem"), 40),)) for number in range(4)]
    for counters, expected in ((80, 2), (160, 4), (30, 0), (80, 2)):
        asked = questions(slices(*parts, counters=counters))
        assert rooms.room(asked, Use(asked.pools, Held()), [claim(request())], 10).pods == expected


def test_what_takes_nothing_has_room_for_all() -> None:
    """A2: an administrator's access, and shares of a device without capacities."""
    rooms = DeviceRooms()
    asked = questions(slices(Device(name="g"), Device(name="s", shared=True)))
    for each in (request(admin=True), request(selectors=("device.allowMultipleAllocations",))):
        assert rooms.room(asked, Use(asked.pools, Held()), [claim(each)], 1000)[:2] == (1000, False)


def test_an_alternative_in_error_refuses_only_who_needs_it() -> None:
    """A5: pods have the first alternative as with kube-scheduler; whoever needs the other one is
    refused.
    """
    either = (
        DeviceRequest(name="s0", parent="r", class_name="gpu", count=2),
        DeviceRequest(
            name="s1",
            parent="r",
            class_name="gpu",
            selectors=('device.attributes["d"].absent == 1',),
        ),
    )
    asks = DeviceClaim(namespace="ns", name="c", requests=(either,))
    for devices in (2, 3, 6):
        asked = questions(slices(*(Device(name=f"g{number}") for number in range(devices))))
        assert DeviceRooms().room(asked, Use(asked.pools, Held()), [asks], 10).pods == devices // 2
    asked = questions(slices(Device(name="g")))
    with pytest.raises(DeviceFault, match="no such key: absent"):
        DeviceRooms().room(asked, Use(asked.pools, Held()), [asks], 10)


def test_a_selector_in_error_is_told_before_a_lack_of_devices() -> None:
    """kube-scheduler evaluates selectors on free devices before it finds that there are too few."""
    fails = claim(request(selectors=('device.attributes["d"].absent == 1',)), request(2, name="s"))
    (part,) = slices(Device(name="g"))
    asked = questions([part])
    with pytest.raises(DeviceFault, match="no such key: absent"):
        DeviceRooms().room(asked, Use(asked.pools, Held()), [fails], 10)
    taken = Held([DeviceResult("r", ("d", "p", "g"))])
    assert DeviceRooms().room(asked, Use(asked.pools, taken), [fails], 10).pods == 0


def test_requests_are_bounded() -> None:
    """A12: what is asked of each device is bounded as well."""
    asked = questions(slices(Device(name="g")))
    many = claim(*(request(name=f"r{number}") for number in range(MOST_REQUESTS + 1)))
    with pytest.raises(DevicesUnsupported, match="25 requests and alternatives are more than 24"):
        DeviceRooms().room(asked, Use(asked.pools, Held()), [many], 1)


def test_a_search_that_ends_early_has_the_room_found_so_far() -> None:
    """A12: steps are counted; nothing is taken afterwards."""
    devices = [
        Device(name=f"g{number}", attributes={"a": ("int", number % 7), "b": ("int", number % 5)})
        for number in range(40)
    ]
    alike = (DeviceConstraint("d/a", requests=("r",)), DeviceConstraint("d/b", distinct=True))
    asked = questions(slices(*devices))
    use = Use(asked.pools, Held())
    found = DeviceRooms().room(
        asked, use, [claim(request(3), request(2, name="q"), constraints=alike)], 8
    )
    assert found.ended
    assert found.steps == MOST_STEPS + 2 * 40 // 4
    assert 1 <= found.pods < 8
    assert not any(use.holders)
