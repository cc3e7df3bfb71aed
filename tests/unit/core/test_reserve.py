"""The ledger: which promised room it takes."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from gangsched.core.reserve import Ledger
from gangsched.model.inter_pod import HostPort, InterPodConstraints
from gangsched.model.nominated_room import NominatedRoom, Nomination
from gangsched.model.snapshot import Snapshot
from tests.builders import GPU, node, pod, shape, snapshot
from tests.unit.core.filter.volumes.test_volume_binding import claim, storage, using, volume


def promised(*nominations: Nomination) -> Snapshot:
    """Two nodes of 8 GPUs with these nominations."""
    picture = snapshot([node("a"), node("b")])
    return structs.replace(picture, nominated=NominatedRoom.of(nominations, picture.layout))


def free(ledger: Ledger) -> list[int]:
    """Free GPUs by node."""
    found: list[int] = ledger.free[ledger.resources[GPU]].tolist()
    return found


def test_nominated_room_is_kept_from_equal_and_lower_priority() -> None:
    """V10: room that is made for a group counts as taken, except for higher priority and for the
    group itself.
    """
    ours = [Nomination("a", pod(f"n{i}", gpus=2, priority=5), "ns/g") for i in range(3)]
    ledger = Ledger(promised(*ours, Nomination("b", pod("other", gpus=1, priority=3))))
    ledger.respect_nominations(5)
    assert free(ledger) == [2, 8]
    ledger.respect_nominations(5, but="ns/g")
    assert free(ledger) == [8, 8]
    ledger.respect_nominations(0, but="ns/g")
    assert free(ledger) == [8, 7]
    ledger.respect_nominations(0, but="ns/other")
    assert free(ledger) == [2, 7]
    ledger.respect_nominations(6, but="ns/g")
    assert free(ledger) == [8, 8]
    ledger.respect_nominations(0)
    assert free(ledger) == [2, 7]


def test_nominated_room_beside_its_victims_is_less_than_nothing() -> None:
    """V10: members are nominated beside the victims that are still there, so room that comes free
    is theirs.
    """
    crowded = snapshot([node("a")], [(pod("victim", gpus=8), "a")])
    ours = Nomination("a", pod("n", gpus=8, priority=5), "ns/g")
    ledger = Ledger(structs.replace(crowded, nominated=NominatedRoom.of([ours], crowded.layout)))
    ledger.respect_nominations(1)
    assert free(ledger) == [-8]
    ledger.release(pod("victim", gpus=8), "a")
    assert ledger.room(pod("late").shape).tolist() == [0]


def test_a_claim_of_a_nominated_pod_is_free_for_higher_priority() -> None:
    """V10: what filters read of a nominated pod, its claims too, counts for equal and lower
    priority only.
    """
    with_port = replace(shape(), inter_pod=InterPodConstraints(ports=(HostPort("TCP", 80),)))
    nominated = Nomination("a", using("n", "c", of=with_port, priority=5), "ns/g")
    picture = structs.replace(
        promised(nominated),
        storage=storage(claim("c", access_modes=("ReadWriteOncePod",)), volume("v-c")),
    )
    ledger, late = Ledger(picture), using("late", "c")
    ledger.respect_nominations(5)
    assert not ledger.takes(late, "b")
    ledger.respect_nominations(6)
    assert ledger.takes(late, "b")
    ledger.rollback(0)
    assert ledger.takes(late, "b")
