"""Reservations for devices that others use, in random small clusters with exact run times."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from gangsched.api import keys
from gangsched.core.node_terms import NODE_NAME_FIELD
from gangsched.model.devices import DeviceClaim, DeviceRequest, DeviceResult
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, NodeSelectorTerm
from gangsched.model.protocol import Applied, BindClaims, ClaimsWritten, Gone
from gangsched.model.reservation import ReservationLimits
from gangsched.model.storage import ResourceClaim
from gangsched.state.rule_set import Rules
from gangsched.state.validate import validate
from tests.builders import node, pod, running
from tests.sizes import of_size
from tests.unit.state.test_served import devices_of, gang_of, wanting, world_of
from tests.world import EPOCH_S

LATE_S = 2.0


class Played:
    """A world in which claims are written, and pods end just when they said that they would."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.models = {
            f"n{n}": "".join(rng.choices("aab", k=rng.randint(2, 4)))
            for n in range(rng.randint(1, 3))
        }
        slices = [devices_of(name, models) for name, models in self.models.items()]
        rules = Rules(allocates=True, reservations=ReservationLimits(share=1.0))
        self.world = world_of([node(name, gpus=0) for name in self.models], slices, rules=rules)
        self.world.fate = lambda order: "later" if isinstance(order, BindClaims) else "bound"
        self.ends_s: dict[str, float] = {}
        self.number = 0

    @property
    def wall_s(self) -> float:
        return EPOCH_S + self.world.now_s

    def run_time(self) -> tuple[tuple[str, str], ...]:
        """Of a fifth of the pods nobody knows how long they run."""
        return (
            ((keys.EXPECTED_RUNTIME, f"{self.rng.randint(1, 20) * 30}s"),)
            if self.rng.random() < 0.8
            else ()
        )

    def occupy(self) -> None:
        """Pods run that have some of the devices."""
        for name, models in self.models.items():
            for number, model in enumerate(models):
                if self.rng.random() < 0.7:
                    self.number += 1
                    uid = f"r{self.number}"
                    claim = claim_of(
                        uid, uid, name, ((f"{model}{number}", "container-0-request-1"),)
                    )
                    use = ClaimUse(claim.name, ephemeral=True, device=True, extended=True)
                    of = wanting(1) if model == "a" else wanting(0, 1)
                    made = pod(
                        uid, uid=uid, of=of, claims=(use,), run_time_metadata=self.run_time()
                    )
                    self.world.say(Applied(claim))
                    self.world.create([running(made, name)])
                    self.began(uid)

    def began(self, uid: str) -> None:
        """The pod runs from now on."""
        made = self.world.update(self.world.pods[uid], start_s=int(self.wall_s))
        if made.run_time_metadata:
            self.ends_s[uid] = int(self.wall_s) + int(made.run_time_metadata[0][1][:-1])

    def serve(self) -> None:
        """Claims are written and pods bound until nothing more happens."""
        self.world.settle()
        while orders := [each for each in self.world.unanswered if isinstance(each, BindClaims)]:
            self.world.unanswered.clear()
            for order in orders:
                (selection,) = order.claims
                assert selection.allocation is not None
                had = tuple((each.id[2], each.request) for each in selection.allocation.results)
                made = claim_of(order.name, order.uid, order.node, had)
                self.world.say(Applied(made))
                # As its status shows; else nobody would know that the devices are free when the pod
                # ends.
                use = ClaimUse(made.name, ephemeral=True, device=True, extended=True)
                self.world.update(self.world.pods[order.uid], claims=(use,))
                self.world.say(ClaimsWritten(order.uid, {selection.key: "5"}))
            self.world.settle()
            for order in orders:
                assert self.world.pods[order.uid].node_name, "it is bound"
                self.began(order.uid)
            self.world.settle()
        assert validate(self.world.state) == []
        held = Counter(result.id for claim in self.claims() for result in claim.asks.results or ())  # type: ignore[union-attr]
        assert not held or max(held.values()) == 1, held

    def claims(self) -> list[ResourceClaim]:
        cache = self.world.state.cluster.storage_cache
        return [each for each in cache.storage().devices.values() if each.asks is not None]

    def end(self) -> None:
        """Pods whose time is over end, and their claims with them."""
        for uid in [uid for uid, at_s in self.ends_s.items() if at_s <= self.wall_s]:
            del self.ends_s[uid]
            gone = self.world.pods[uid]
            self.world.delete(gone)
            self.world.say(
                Gone(ResourceClaim, f"resourceclaims/ns/{gone.name}-extended-resources-{uid}")
            )

    def arrive(self) -> None:
        """Another pod, which comes after the gang."""
        self.number += 1
        uid = f"l{self.number}"
        of = wanting(*self.rng.choice([(1, 0), (2, 0), (0, 1), (1, 1)]))
        self.world.create(
            [pod(uid, uid=uid, of=of, creation_s=10**9, run_time_metadata=self.run_time())]
        )


def claim_of(name: str, uid: str, on: str, devices: tuple[tuple[str, str], ...]) -> ResourceClaim:
    """The claim of a pod as it is written, with these devices and their requests."""
    full = f"{name}-extended-resources-{uid}"
    results = tuple(DeviceResult(request, ("d", on, device)) for device, request in devices)
    counts = Counter(request for _, request in devices)
    classes = {request: f"class-{device[0]}" for device, request in devices}
    asked = tuple(
        (DeviceRequest(name=each, class_name=classes[each], count=counts[each]),)
        for each in sorted(counts)
    )
    term = NodeSelectorTerm(fields=(Requirement(NODE_NAME_FIELD, "In", (on,)),))
    return ResourceClaim(
        namespace="ns",
        name=full,
        uid=f"claim-{uid}",
        resource_version="5",
        allocated=True,
        required=(term,),
        reserved=(uid,),
        owner_uid=uid,
        asks=DeviceClaim(
            namespace="ns", name=full, uid=f"claim-{uid}", requests=asked, results=results
        ),
    )


def play(seed: int) -> tuple[bool, int]:
    """Whether the gang was promised a start, and how many later pods started before it."""
    played = Played(seed)
    world, rng = played.world, played.rng
    played.occupy()
    world.create(
        gang_of(*(wanting(*rng.choice([(1, 0), (2, 0), (1, 1)])) for _ in range(rng.randint(1, 3))))
    )
    played.serve()
    promised_s, passed = float("inf"), set[str]()
    for _ in range(60):
        if world.pods["u0"].node_name:
            break
        standing = world.state.reservations.standing
        promised_s = min(
            [promised_s, *(each.promised_s for each in standing if each.group == "ns/g")]
        )
        assert played.wall_s <= promised_s + LATE_S, f"seed {seed}: not started as promised"
        if rng.random() < 0.5:
            played.arrive()
            played.serve()
            passed |= {
                uid for uid, each in world.pods.items() if uid.startswith("l") and each.node_name
            }
        next_s = min([*played.ends_s.values(), played.wall_s + 30.0])
        world.advance(max(0.5, next_s - played.wall_s))
        played.end()
        played.serve()
    return promised_s < float("inf"), len(passed)


@pytest.mark.long
def test_a_promised_start_for_devices_is_kept() -> None:
    """H5, H8, H13: whatever comes later, the first head has its devices in time, and no device is
    in two claims.
    """
    promised, passed, seeds = 0, 0, of_size(6, 160)
    for seed in range(seeds):
        is_promised, others = play(seed)
        promised += is_promised
        passed += others if is_promised else 0
    assert promised > seeds // 5, promised
    assert passed > seeds // 8, passed
