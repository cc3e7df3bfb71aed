"""Promised room as columns: what a plan takes of it is what its promises, taken one by one, come
to.
"""

from __future__ import annotations

import random

import pytest
from msgspec import structs

from gangsched.core.reserve import Ledger
from gangsched.model.inter_pod import HostPort, InterPodConstraints
from gangsched.model.nominated_room import Nomination
from gangsched.model.resources import from_dict
from gangsched.model.snapshot import Snapshot
from gangsched.state.room_book import RoomBook
from tests import builders
from tests.builders import GPU, node

PORT = InterPodConstraints(ports=(HostPort("TCP", 80),))


def promise(dice: random.Random, number: int) -> Nomination:
    """Any room for any pod; now and then on a node that is gone, or with a host port."""
    shape = builders.shape(dice.randint(1, 8), inter_pod=PORT if dice.random() < 0.2 else None)
    freed = from_dict({GPU: dice.randint(1, 4)}) if dice.random() < 0.4 else ()
    pod = builders.pod(
        f"p{number}", of=shape, priority=dice.choice([0, 5, 9]), namespace="", uid=f"u{number}"
    )
    return Nomination(
        dice.choice(["a", "b", "c", "gone"]), pod, dice.choice(["ns/g", "ns/h", ""]), freed
    )


def one_by_one(picture: Snapshot, promises: list[Nomination], priority: int, but: str) -> Ledger:
    """The ledger with every promise that counts taken by itself."""
    ledger = Ledger(picture)
    for each in promises:
        index = picture.table.index.get(each.node)
        if index is not None and each.pod.priority >= priority and (each.group != but or not but):
            ledger.move([(each.pod, each.node)], 1)
            for name, amount in each.freed:
                ledger.free[ledger.resources[name], index] += amount
    return ledger


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_promises_are_their_sums(seed: int) -> None:
    """V10, F1: promises are made, changed and ended between snapshots, nodes come; any priority
    respects, any group is spared, and a rollback restores what was there."""
    dice, book, standing = random.Random(seed), RoomBook(), dict[str, Nomination]()
    picture = builders.snapshot([node("a"), node("b")])
    for step in range(12):
        if step == 6:
            picture = builders.snapshot([node("a"), node("b"), node("c")])
        for number in dice.choices(range(12), k=dice.randint(0, 4)):
            key = f"k{number}"
            if dice.random() < 0.3:
                standing.pop(key, None)
                book.set(key, None)
            else:
                standing[key] = promise(dice, number)
                book.set(key, standing[key])
        shown = structs.replace(picture, nominated=book.current(picture.layout))
        assert set(map(str, book.on("a"))) == {
            str(each) for each in standing.values() if each.node == "a"
        }
        ledger = Ledger(shown)
        for _ in range(4):
            priority, but = (
                dice.choice([0, 3, 5, 7, 10]),
                dice.choice(["", "ns/g", "ns/h", "ns/unknown"]),
            )
            checkpoint, before = ledger.checkpoint(), ledger.free.copy()
            ledger.respect_nominations(priority, but=but)
            expected = one_by_one(picture, list(standing.values()), priority, but)
            assert ledger.free.tolist() == expected.free.tolist(), (seed, step, priority, but)
            probe = builders.pod("probe", of=builders.shape(1, inter_pod=PORT))
            places = [name for name in picture.table.names if ledger.takes(probe, name)]
            assert places == [
                name for name in picture.table.names if expected.takes(probe, name)
            ], (seed, step)
            ledger.rollback(checkpoint)
            assert (ledger.free == before).all()
            ledger.respect_nominations(priority, but=but)
            assert ledger.free.tolist() == expected.free.tolist(), (
                "a rollback forgets what was respected, too"
            )
