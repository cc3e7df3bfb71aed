"""What members with a node fix for the others, the search knows as the verifier does, also where
labels of nodes change (R3, B2): cases, and a few of the histories of `moved_labels`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.model.gpu_policy import PRODUCT_LABEL, TOPOLOGY_KEYS
from gangsched.model.objects import Node, Pod
from gangsched.model.protocol import Bind
from tests.builders import gang_metadata, node, pod
from tests.properties.moved_labels import wrong
from tests.sizes import of_size
from tests.world import World

HISTORIES = of_size(100, 2_000)
_, RACK, ZONE = TOPOLOGY_KEYS
A100, H100 = "A100", "H100"
SAME_PRODUCT = (keys.GPU_PRODUCT[0], "same")


def at(name: str, gpus: int = 2, *, rack: str = "", zone: str = "", product: str = "") -> Node:
    """A node with these labels."""
    stated = {RACK: rack, ZONE: zone, PRODUCT_LABEL: product}
    return node(name, gpus, labels={key: value for key, value in stated.items() if value})


def gang_of(number: int, *more: tuple[str, str], first: int = 0, **stated: Any) -> list[Pod]:
    """Members of gang g, numbered from `first` on."""
    gpus = stated.pop("gpus", 1)
    fields = stated.pop("fields", {})
    metadata = tuple(sorted((*gang_metadata("g", **stated), *more)))
    indexes = range(first, first + number)
    return [
        pod(f"g-{index}", gpus=gpus, index=index, gang_metadata=metadata, **fields)
        for index in indexes
    ]


def slices(*layers: tuple[int, str]) -> tuple[str, str]:
    """The annotation with these layers of slices."""
    stated = [{"size": size, "topology": key} for size, key in layers]
    return keys.SLICES[0], json.dumps(stated)


def refuse(world: World, *names: str) -> None:
    """The API server refuses the binds of these pods."""

    def fate(order: object) -> str:
        is_refused = isinstance(order, Bind) and order.name in names
        return "failed" if is_refused else "bound"

    world.fate = fate


def nodes_of(world: World, pods: Sequence[Pod]) -> list[str]:
    """The nodes of these pods, "" for those that wait."""
    bound = world.bound()
    return [bound.get(member.name, "") for member in pods]


@pytest.mark.parametrize("product", ["", H100])
def test_kept_room_whose_node_has_another_product_is_lost(product: str) -> None:
    """R3, B3: the member goes where the others are."""
    world = World(at("a", 1, product=A100), at("b", 1, product=A100))
    refuse(world, "g-1")
    pods = world.create(gang_of(2, SAME_PRODUCT, min_member=2))
    world.settle()
    (where,) = {"a", "b"} - {*world.bound().values()}

    world.add_nodes(at(where, 1, product=product), at("c", 1, product=A100))
    refuse(world)
    world.advance(60)

    assert nodes_of(world, pods)[1] == "c"


@pytest.mark.parametrize("product", ["", H100])
def test_held_room_whose_node_has_another_product_is_lost(product: str) -> None:
    """R3: a gang starts on one product, or waits."""
    world = World(*(at(name, 1, product=A100) for name in "abx"))
    world.create(pod("other", node_name="x", scheduler_name="other"))
    pods = world.create(gang_of(3, SAME_PRODUCT, min_member=3, mode="NonStrict"))
    world.settle()
    assert len(world.held()) == 2

    world.add_nodes(at("b", 1, product=product), at("c", 1, product=H100))
    world.settle()
    assert nodes_of(world, pods) == ["", "", ""]

    world.add_nodes(at("d", 2, product=A100))
    world.settle()
    assert set(nodes_of(world, pods)) == {"a", "d"}


def test_a_member_without_accelerators_fixes_no_product() -> None:
    """It may be on any node, and two of them do not outnumber a worker."""
    others = {PRODUCT_LABEL: H100}
    world = World(node("b", 0, labels=others, pods=1), node("c", 0, labels=others, pods=1))
    world.add_nodes(node("a", 1, labels={PRODUCT_LABEL: A100}, pods=1))
    launchers = gang_of(2, SAME_PRODUCT, min_member=3, gpus=0, fields={"cpu_milli": 1_000})
    workers = gang_of(1, SAME_PRODUCT, min_member=3, first=2)
    world.create(launchers, workers)
    world.settle()
    assert sorted(nodes_of(world, launchers)) == ["b", "c"]

    late = world.create(gang_of(1, SAME_PRODUCT, min_member=3, first=3))
    world.add_nodes(at("d", 1, product=H100), at("e", 1, product=A100))
    world.settle()
    assert nodes_of(world, late) == ["e"]


def test_the_rack_still_holds_where_running_members_have_lost_their_product() -> None:
    """L6: their nodes are in no domain of both labels."""
    world = World(at("a", 2, rack="r", product=A100))
    world.create(gang_of(2, SAME_PRODUCT, min_member=2, topology=RACK))
    world.settle()

    world.add_nodes(
        at("a", 2, rack="r"),
        at("b", 8, rack="s", product=A100),
        at("c", 1, rack="r", product=H100),
    )
    late = world.create(gang_of(2, SAME_PRODUCT, min_member=2, topology=RACK, first=2))
    world.settle()
    assert nodes_of(world, late) == ["c", ""]


def test_members_that_run_in_no_domain_leave_one_to_the_others() -> None:
    """All of them go to one rack, that with most room."""
    world = World(at("a", 2, rack="r"))
    world.create(gang_of(2, min_member=2, topology=RACK))
    world.settle()

    world.add_nodes(at("a", 2), at("b", 1, rack="r"), at("c", 1, rack="s"), at("d", 1, rack="s"))
    late = world.create(gang_of(3, min_member=2, topology=RACK, first=2))
    world.settle()
    assert sorted(nodes_of(world, late)) == ["", "c", "d"]


def test_kept_room_outside_of_the_rack_of_its_slice_is_lost() -> None:
    """R3: slices by index."""
    world = World(at("a", 1, rack="r"), at("b", 1, rack="r"))
    refuse(world, "g-1")
    pods = world.create(gang_of(2, slices((2, RACK)), min_member=2))
    world.settle()
    (where,) = {"a", "b"} - {*world.bound().values()}

    world.add_nodes(at(where, 1, rack="s"), at("c", 1, rack="r"))
    refuse(world)
    world.advance(60)
    assert nodes_of(world, pods)[1] == "c"


def test_a_retry_and_a_new_member_of_one_slice_go_to_one_rack() -> None:
    """B3: a gang that counts waiting and running members places them in two ways."""
    policy: dict[str, Any] = {"policy": "waiting-and-running", "min_member": 2}
    world = World(at("a", 2, rack="r"))
    world.create(gang_of(2, slices((2, RACK)), **policy))
    world.settle()

    world.add_nodes(at("b", 1, rack="s"))
    refuse(world, "g-2")
    (first,) = world.create(gang_of(1, slices((2, RACK)), first=2, **policy))
    world.settle()
    assert first.name not in world.bound()

    world.add_nodes(at("b", 0, rack="s"), at("c", 1, rack="t"), at("d", 2, rack="u"))
    (second,) = world.create(gang_of(1, slices((2, RACK)), first=3, **policy))
    refuse(world)
    world.advance(60)
    assert nodes_of(world, [first, second]) == ["d", "d"]


def test_an_inner_slice_waits_where_the_nodes_of_the_rest_have_lost_the_outer_label() -> None:
    """Its rack is known and its zone is not."""
    layers = slices((4, ZONE), (2, RACK))
    world = World(at("a", 3, rack="r", zone="x"))
    world.create(gang_of(3, layers, min_member=3, total=4))
    world.settle()

    world.add_nodes(at("a", 3, rack="r"), at("b", 1, rack="r", zone="x"))
    late = world.create(gang_of(1, layers, min_member=3, total=4, first=3))
    world.advance(60)
    assert nodes_of(world, late) == [""]
    assert f"the {ZONE} of the rest of the slice" in world.condition(late[0])[1]

    world.add_nodes(at("a", 3, rack="r", zone="x"))
    assert nodes_of(world.settle(), late) == ["b"]


@pytest.mark.parametrize("more", [{"topology": RACK}, {}])
def test_a_second_run_need_not_be_where_the_first_one_runs(more: dict[str, Any]) -> None:
    """I6: runs of a CronJob that overlap are starts of their own."""
    stated = () if more else (SAME_PRODUCT,)
    world = World(at("a", 2, rack="r", product=A100))
    first = {"controller_uid": "1", "controller_kind": "Job", "owner": "job-1"}
    world.create(gang_of(2, *stated, min_member=2, fields=first, **more))
    world.settle()

    second = {**first, "controller_uid": "2", "owner": "job-2", "creation_s": world.wall_s() + 5}
    world.add_nodes(at("b", 2, rack="s", product=H100))
    late = world.create(gang_of(2, *stated, min_member=2, first=2, fields=second, **more))
    world.advance(60)
    assert nodes_of(world, late) == ["b", "b"]


@pytest.mark.parametrize("seed", [2_920, 3_111, 3_919, 4_138, 6_602])
def test_histories_that_were_wrong(seed: int) -> None:
    """Parts of trees whose nodes have lost the label of one of two levels, and a gang that needs
    nobody where its members leave no domain.
    """
    assert wrong(seed) == []


@pytest.mark.long
def test_no_changed_label_sets_a_gang_aside() -> None:
    """B2, I10: a failure says how its seed is played again."""
    assert [sentence for seed in range(HISTORIES) for sentence in wrong(seed)] == []
