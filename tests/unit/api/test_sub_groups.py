"""Sub groups of Volcano's PodGroups: trees by labels of pods (docs/semantics/dialects.md, I9)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.keys import VOLCANO
from gangsched.api.podgroup import parse_pod_group
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.protocol import Replaced
from gangsched.state.divided_pods import MOVED_AT_A_TIME
from tests.builders import node, pod
from tests.world import World

MARK = VOLCANO + "/group-name"


def role(name: str = "decode", **fields: Any) -> dict[str, Any]:
    """An entry that selects the pods of a role and divides them by their number."""
    entry = {
        "name": name,
        "labelSelector": {"matchLabels": {"role": name}},
        "matchLabelKeys": ["number"],
    }
    return {**entry, "subGroupSize": 2, **fields}


def group(*policy: Any, annotations: dict[str, str] | None = None, **spec: Any) -> PodGroup:
    """PodGroup ns/g of Volcano with this policy."""
    metadata: dict[str, Any] = {
        "namespace": "ns",
        "name": "g",
        "uid": "u",
        "annotations": annotations or {},
    }
    metadata["creationTimestamp"] = "2024-05-01T12:00:01Z"
    spec = {"subGroupPolicy": list(policy), **spec}
    return parse_pod_group({"apiVersion": f"{VOLCANO}/v1beta1", "metadata": metadata, "spec": spec})


def of(name: str, number: int, count: int = 2, *, first: int = 0, **fields: Any) -> list[Pod]:
    """Pods of one sub group of a role."""
    given = {
        "gang_metadata": ((MARK, "g"),),
        "labels": {"role": name, "number": str(number)},
        **fields,
    }
    return [pod(f"{name}-{number}-{each}", **given) for each in range(first, first + count)]


def bound(world: World) -> set[str]:
    """The sub groups of which pods are bound, after all is settled."""
    return {name.rpartition("-")[0] for name in world.settle().told().bound()}


def test_two_roles_start_whole_and_together() -> None:
    """Each role needs its minimum; a further sub group starts whole, pods of no entry last, one by
    one.
    """
    world = World(node("a", 7))
    world.declare(group(role("decode", minSubGroups=2), role("prefill", minSubGroups=1)))
    world.create(of("decode", 0), of("decode", 1), of("decode", 2), of("other", 0, 3))
    assert bound(world) == set()
    (pending,) = [each for each in world.pods.values() if each.name == "decode-0-0"]
    assert world.condition(pending)[0] == "WaitingForGang"
    world.create(of("prefill", 0, 1))
    assert bound(world) == set()
    world.create(of("prefill", 0, 1, first=1))
    assert bound(world) == {"decode-0", "decode-1", "prefill-0", "other-0"}
    assert len(world.bound()) == 7
    world.add_nodes(node("b", 1))
    assert len(world.settle().bound()) == 8  # one of the pods of no entry
    world.add_nodes(node("c", 3))
    assert "decode-2" in bound(world)
    status = world.status("g")
    assert (status["phase"], status["running"]) == ("Running", 11)
    assert world.gang_condition("g", "Scheduled") == "True"


@pytest.mark.parametrize("is_late", [True, False])
def test_the_object_may_come_after_its_pods(is_late: bool) -> None:
    """A1: pods wait for the object, and are divided once it is there; a restart reads both in any
    order.
    """
    world = World(node("a", 3))
    pods, declared = [*of("decode", 0), *of("decode", 1)], group(role(minSubGroups=1))
    if is_late:
        world.create(pods)
        assert bound(world) == set()
        world.declare(declared)
    else:
        world.declare(declared)
        world.create(pods)
    assert bound(world) == {"decode-0"}
    world.say(Replaced(PodGroup, (declared,), VOLCANO))
    world.add_nodes(node("b", 1))
    assert bound(world) == {"decode-0", "decode-1"}


def test_an_edit_divides_pods_anew_and_a_deletion_ends_the_tree() -> None:
    """I5: bound pods are left alone; without the object nothing more starts."""
    world = World(node("a", 2))
    world.declare(group(role(minSubGroups=2)))
    pods = world.create(of("decode", 0), of("decode", 1))
    assert bound(world) == set()
    whole = role(matchLabelKeys=[], subGroupSize=4)
    world.declare(msgspec.structs.replace(group(whole), generation=2))
    assert bound(world) == set()
    assert {world.state.members[each.uid].gang for each in pods} == {"ns/g:decode(all)"}
    world.add_nodes(node("b", 2))
    assert bound(world) == {"decode-0", "decode-1"}
    world.withdraw(group(whole))
    world.create(of("decode", 7))
    assert bound(world) == {"decode-0", "decode-1"}
    world.delete(*pods)
    world.settle()
    assert not [each for each in world.state.registry.gangs if each.startswith("ns/g:")]


def test_a_pod_of_two_entries_refuses_all_of_them() -> None:
    """A5: which minimum it would count for nobody can say; when its labels are correct,
    all start.
    """
    world = World(node("a", 8))
    both = {
        "matchExpressions": [{"key": "role", "operator": "In", "values": ["decode", "prefill"]}]
    }
    world.declare(group(role(), role("all", labelSelector=both)))
    pods = world.create(of("decode", 0))
    world.settle().told()
    text = (
        f"pod {pods[0].key} is selected by two entries in subGroupPolicy of PodGroup ns/g: correct"
        " them"
    )
    assert world.bound() == {}
    assert world.condition(pods[0]) == ("InvalidGang", text)
    for each in pods:
        world.update(each, labels={"role": "prefill", "number": "0"})
    assert bound(world) == {"decode-0"}


def test_a_label_that_changes_moves_a_pod() -> None:
    """I2: a pod is in the sub group that its labels say now; a pod without a label of the entry is
    in none.
    """
    world = World(node("a", 8))
    world.declare(group(role(minSubGroups=1)))
    (one, _), (two, _) = world.create(of("decode", 0)), world.create(of("decode", 1))
    world.update(two, gated=True)
    assert bound(world) == {"decode-0"}
    world.update(two, gated=False, labels={"role": "decode", "number": "0"})
    assert len(world.settle().bound()) == 3
    alone = world.create(pod("decode-x", gang_metadata=((MARK, "g"),), labels={"role": "decode"}))
    assert "decode-x" in world.settle().bound()
    assert world.state.members[alone[0].uid].gang == "ns/g:(others)"
    assert world.state.members[one.uid].gang == "ns/g:decode(number=0)"


def test_a_member_that_is_lost_joins_its_sub_group_again() -> None:
    """I6: the replacement has the same labels, and starts alone."""
    world = World(node("a", 4))
    world.declare(group(role(minSubGroups=2)))
    lost, *_ = world.create(of("decode", 0), of("decode", 1))
    assert len(world.settle().bound()) == 4
    world.delete(lost)
    world.create(of("decode", 0, 1, first=9))
    assert "decode-0-9" in world.settle().bound()


def test_a_required_level_holds_for_the_whole_tree() -> None:
    """A4: an annotation of the object; one on the pods holds for their sub group."""
    racks = [node(f"{rack}{each}", 2, labels={"rack": rack}) for rack in "ab" for each in range(2)]
    world = World(*racks)
    world.declare(group(role(minSubGroups=3), annotations={keys.TOPOLOGY[0]: "rack"}))
    world.create(*(of("decode", each) for each in range(3)))
    assert bound(world) == set()
    apart = World(*racks)
    apart.declare(group(role(minSubGroups=3)))
    stated = tuple(sorted(((MARK, "g"), (keys.TOPOLOGY[0], "rack"))))
    apart.create(*(of("decode", each, gang_metadata=stated) for each in range(3)))
    assert len(bound(apart)) == 3


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "a"}, "spec.subGroupPolicy[0] of PodGroup ns/g: labelSelector is missing"),
        (
            role(name="A b"),
            'spec.subGroupPolicy[0] of PodGroup ns/g: name "A b" is not the name of an object',
        ),
        (
            role(subGroupSize=0),
            'spec.subGroupPolicy[0] of PodGroup ns/g: subGroupSize "0" is not a number from 1',
        ),
        (
            role(minSubGroups=True),
            'spec.subGroupPolicy[0] of PodGroup ns/g: minSubGroups "True" is not a number from 0',
        ),
        (role(matchLabelKeys="number"), "spec.subGroupPolicy[0] of PodGroup ns/g: matchLabelKeys"),
        (
            role(labelSelector={"matchLabel": {}}),
            "spec.subGroupPolicy[0] of PodGroup ns/g: labelSelector has the unkn",
        ),
        (
            role(labelSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "spec.subGroupPolicy[0] of PodGroup ns/g: ",
        ),
        (7, 'spec.subGroupPolicy[0] "7" of PodGroup ns/g is not an object'),
    ],
)
def test_an_entry_that_cannot_be_read_refuses(entry: Any, said: str) -> None:
    """A5: and nothing of the policy counts."""
    found = group(entry)
    (sentence,) = found.invalid
    assert sentence.startswith(said), sentence
    assert found.parts == ()


def test_policies_are_bounded() -> None:
    """Entries and what their selectors compare are few, since each pod is compared with all
    of it.
    """
    assert "33 entries" in group(*(role(f"r{each}") for each in range(33))).invalid[0]
    many = {
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": [str(each) for each in range(800)]}
        ]
    }
    assert (
        "more than 1024 requirements"
        in group(role(labelSelector=many), role("b", labelSelector=many)).invalid[0]
    )
    assert "two entries with the name" in group(role(), role()).invalid[0]


def test_min_member_holds_beside_sub_groups() -> None:
    """Of one entry so many sub groups that they have minMember pods; of several, nobody
    says which.
    """
    _, entry, _ = group(role(), minMember=5).parts
    assert entry.min_children == 3
    assert group(role(minSubGroups=1), role("b", minSubGroups=1), minMember=4).unsupported == ()
    (said,) = group(role(minSubGroups=1), role("b"), minMember=4).unsupported
    assert said.startswith(
        "the sub groups that subGroupPolicy of PodGroup ns/g requires have 2 pods, fewer than"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"minTaskMember": {"a": 1}, "minMember": 1},
            "PodGroup ns/g has both minTaskMember and subGroupPolicy",
        ),
        (
            {"annotations": {keys.MIN[0]: "3"}},
            f"annotation {keys.MIN[0]} of PodGroup ns/g cannot be combined",
        ),
    ],
)
def test_two_kinds_of_minimum_refuse(fields: dict[str, Any], said: str) -> None:
    """A2: not honoured by half."""
    assert any(each.startswith(said) for each in group(role(), **fields).parts[0].unsupported)


@pytest.mark.parametrize(("mode", "where"), [("hard", "unsupported"), ("soft", "not_used")])
def test_hyper_nodes_of_an_entry(mode: str, where: str) -> None:
    """A2: a requirement refuses, a preference is told."""
    (said,) = getattr(group(role(networkTopology={"mode": mode})), where)
    assert said.startswith("subGroupPolicy[0].networkTopology of PodGroup ns/g ")


def test_pods_move_a_few_at_a_time() -> None:
    """Attack: an object of 600 pods that changes again and again; a turn assigns a bounded number
    of them.
    """
    world = World(node("a", 1))
    world.create(*(of("decode", number, 1) for number in range(600)))
    world.settle()
    sub_groups = world.state.pod_gangs.sub_groups
    for size in (2, 3):
        world.declare(msgspec.structs.replace(group(role(subGroupSize=size)), generation=size))
        before = len(sub_groups._moving)
        assert before == 600
        world.state.refresh(world.now_s)
        assert len(sub_groups._moving) == before - MOVED_AT_A_TIME
    world.settle()
    assert not sub_groups.is_behind
    assert world.bound() == {}
    world.delete(*world.pods.values())
    world.settle()
    world.create(of("decode", 5, 1))
    world.settle()
    assert len(world.state.registry.gangs) < 10
