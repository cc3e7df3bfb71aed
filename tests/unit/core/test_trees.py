"""Trees: gangs that name one parent, of which a minimum starts together and each other one whole
(I9, G4-G6).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pytest
from msgspec import structs

from gangsched.api import keys
from gangsched.core import tree_choices
from gangsched.core.cycle import Limits, plan
from gangsched.core.pipeline import COMMIT_OF_A_GANG
from gangsched.core.progress import MOST_PLANS
from gangsched.model.gang import Refusal
from gangsched.model.objects import Node, Pod
from gangsched.model.plan import Unfinished
from gangsched.model.protocol import Applied, Bind
from gangsched.model.reasons import Reason
from gangsched.sentences import say
from gangsched.state import parents
from gangsched.turn import plan_of, prepare
from tests.builders import NAMESPACE, members, node, pod, pod_group, running
from tests.world import World


def replica(
    name: str, number: int = 2, *, parent: str = "svc", least: object = 2, **fields: Any
) -> list[Pod]:
    """A child: a gang of `number` pods of 4 GPUs each, whose tree needs `least` children."""
    return members(name, number, parent=parent, min_children=least, **{"gpus": 4, **fields})


def started(world: World, *, besides: Container[str] = ()) -> set[str]:
    """The gangs of which a pod is bound, each with all that its minimum needs; not of other pods
    `besides`.
    """
    found: dict[str, int] = {}
    for each in world.bound():
        gang = each.rpartition("-")[0]
        if (gang or each) in besides:
            continue
        found[gang] = found.get(gang, 0) + 1
    assert all(number >= 2 for number in found.values()), found
    return set(found)


def refusal(world: World, name: str) -> Refusal:
    """What was decided of the gang of this name."""
    record = world.state.registry.groups[world.state.registry.group_of[f"{NAMESPACE}/{name}"]]
    assert record.verdict is not None
    return record.verdict.of_gang(f"{NAMESPACE}/{name}")


def told(world: World, name: str) -> str:
    """What the gang of this name is told."""
    return say(refusal(world, name)).text


def reason(world: World, name: str) -> Reason:
    """Why the gang of this name waits."""
    return refusal(world, name).reason


def test_a_minimum_of_children_starts_and_another_one_later_whole() -> None:
    """G5, G6: two of three replicas start; the third waits whole, and starts when there is room for
    all of it.
    """
    world = World(node("a"), node("b"))
    world.create(replica("r0"), replica("r1"), replica("r2"))
    assert started(world.settle()) == {"r0", "r1"}
    assert "needs 2 pods of 4 nvidia.com/gpu; no eligible node has 4 free" in told(world, "r2")
    world.add_nodes(node("c", 4))
    assert started(world.settle()) == {"r0", "r1"}
    world.add_nodes(node("d", 4))
    assert started(world.settle()) == {"r0", "r1", "r2"}
    world.add_nodes(node("e"))
    world.create(replica("r3"))
    assert started(world.settle()) == {"r0", "r1", "r2", "r3"}


def test_nothing_starts_below_the_minimum_of_children() -> None:
    """G5: room for one of two needed children is room for none."""
    world = World(node("a"))
    world.create(replica("r0"), replica("r1"), replica("r2"))
    assert started(world.settle()) == set()
    world.add_nodes(node("b"))
    assert started(world.settle()) == {"r0", "r1"}


def test_children_that_are_not_ready_are_left_out_unless_they_are_needed() -> None:
    """G4: an incomplete child refuses nobody while enough others are ready; else the message counts
    children.
    """
    world = World(node("a"), node("b"), node("c"))
    world.create(replica("r0"), replica("r1")[:1], replica("r2")[:1])
    assert started(world.settle()) == set()
    assert (
        told(world, "r0")
        == "waiting for children of ns/svc: 1 of 2 needed children is ready; gang ns/r1: 1 of 2 are"
        " ready; 1 is missing"
    )
    assert told(world, "r1") == "waiting for members of gang ns/r1: 1 of 2 are ready; 1 is missing"
    world.create(replica("r2")[1:])
    assert started(world.settle()) == {"r0", "r2"}


def test_children_that_do_not_exist_yet_are_waited_for() -> None:
    """G3: the minimum of children counts, not those that happen to exist."""
    world = World(node("a"), node("b"))
    world.create(replica("r0"))
    assert started(world.settle()) == set()
    assert told(world, "r0").endswith("1 of 2 needed children is ready; 1 is missing")
    world.create(replica("r1"))
    assert started(world.settle()) == {"r0", "r1"}


def test_another_choice_of_children_is_tried() -> None:
    """L14: the first child fits nowhere, and neither do two of the large ones: the choice that fits
    is found.
    """
    world = World(node("a"), node("b"))
    world.create(
        replica("r0", gpus=16), replica("r1", gpus=8), replica("r2", gpus=4), replica("r3", gpus=4)
    )
    assert started(world.settle()) == {"r2", "r3"}
    assert told(world, "r0").startswith("gang ns/r0 can never start: each pod asks for 16")


def test_no_choice_is_told_only_when_none_fits() -> None:
    """M2: the refusal says how many children there are to choose from, and room for any of them is
    looked at.
    """
    world = World(node("a"))
    world.create(replica("r0", gpus=16), replica("r1", gpus=5), replica("r2", gpus=4))
    assert started(world.settle()) == set()
    assert told(world, "r1").startswith(
        "no 2 of the 3 ready children of ns/svc fit together. Gang ns/r0 can never start: each"
    )
    world.add_nodes(node("b", 5), node("c", 5))
    assert started(world.settle()) == {"r1", "r2"}


def test_surplus_of_one_child_costs_no_sibling_its_minimum() -> None:
    """G5: members above a child's minimum come after the minimums of all children, also of further
    ones.
    """
    world = World(node("a"), node("b"), node("c", 4))
    world.create(replica("r0", 4, min_member=2, least=1), replica("r1", least=1))
    world.settle()
    assert sorted(world.bound()) == ["r0-0", "r0-1", "r0-2", "r1-0", "r1-1"]


def test_all_children_start_together_without_a_minimum() -> None:
    """I9: as many children as exist a second after the first one was seen; one that comes later
    starts whole.
    """
    world = World(node("a"))
    world.create(replica("r0", least=None), replica("r1", least=None))
    assert started(world.advance(1)) == set()
    world.add_nodes(node("b"))
    assert started(world.settle()) == {"r0", "r1"}


def test_a_lost_member_is_replaced_though_another_child_waits() -> None:
    """G7: a started child heals by itself, before children above the minimum."""
    world = World(node("a"), node("b"))
    pods = world.create(replica("r0"), replica("r1"), replica("r2"))
    assert started(world.settle()) == {"r0", "r1"}
    world.delete(next(each for each in pods if each.name == "r0-1"))
    world.create(pod("r0-9", gpus=4, gang_metadata=pods[0].gang_metadata))
    world.settle()
    assert "r0-9" in world.bound()


def test_the_minimum_is_lowered_live() -> None:
    """I5: a tree that waits starts once the PodGroup of its name asks for fewer children."""
    world = World(node("a"))
    world.declare(pod_group("svc", None, gang_metadata=((keys.MIN_CHILDREN[0], "2"),)))
    world.create(replica("r0", least=None), replica("r1", least=None))
    assert started(world.settle()) == set()
    world.declare(pod_group("svc", None, gang_metadata=((keys.MIN_CHILDREN[0], "1"),)))
    assert started(world.settle()) == {"r0"}


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"parent": "r0"}, "gang ns/r0 names itself as its parent"),
        ({"parent": "svc", "groups": ["ns/r0", "ns/x"]}, "sets both gangsched.dev/parent and"),
        (
            {"parent": "a b"},
            'parent of pod ns/r0-0 is not the name of an object. Correct or remove "a b"',
        ),
        (
            {"parent": "svc", "min_children": "few"},
            "gangsched.dev/min-children of pod ns/r0-0 is not an integer",
        ),
        ({"parent": "lone"}, "ns/lone, the parent of gang ns/r0, has pods itself"),
        ({"parent": "child"}, "ns/child, the parent of gang ns/r0, has pods itself"),
    ],
)
def test_a_tree_that_cannot_be_one_is_refused_and_harms_nobody(
    stated: dict[str, Any], text: str
) -> None:
    """G3: the fault is named, and neither the named gangs nor siblings wait for the one that states
    it.
    """
    world = World(node("a"), node("b"), node("c"), node("d"))
    world.create(members("r0", 2, **stated), replica("r1", least=1), members("lone", 2))
    world.create(members("child", 2, parent="other"))
    world.advance(2)
    assert started(world.settle()) == {"r1", "lone", "child"}
    assert text in told(world, "r0")
    assert reason(world, "r0") is Reason.INVALID_GANG


def test_the_minimum_of_a_tree_is_computed_once_for_each_change() -> None:
    """G5: what the state passes to plans is what a plan would compute, after children came, started
    and went.
    """
    world = World(node("a"), node("b"), node("c"))
    pods = world.create(replica("r0"), replica("r1"), replica("r2", priority=9))
    for act in (
        world.settle,
        lambda: world.delete(*pods[:2]),
        lambda: world.create(replica("r3", priority=5)),
    ):
        act()
        world.state.refresh(world.now_s)
        group = world.state.registry.group("tree:ns/svc", world.now_s)
        assert group.minimum is tree_choices.needed(group)
        assert group.minimum == tree_choices.needed(structs.replace(group, minimum=None))
        world.settle()


def test_a_parent_that_loses_its_pods_may_have_children() -> None:
    """G3: the children are looked at again once the parent has no pods, though its PodGroup stays
    the same.
    """
    world = World(node("a"), node("b"))
    world.declare(pod_group("lone"))
    lone = world.create(members("lone", 1, pod_group=True))
    world.create(replica("r0", parent="lone", least=1))
    assert "r0-0" not in world.settle().bound()
    world.delete(*lone)
    assert "r0-0" in world.settle().bound()


def test_a_tree_has_a_bounded_number_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """G3: one more is told to all of them; without it they start."""
    monkeypatch.setattr(parents, "MOST_GANGS", 3)
    world = World(node("a"), node("b"))
    for number in range(3):
        world.create(replica(f"r{number}"))
    extra = world.create(replica("r3"))
    assert started(world.settle()) == set()
    assert told(world, "r0") == "more than 3 gangs are in the tree of ns/svc"
    world.delete(*extra)
    assert started(world.settle()) == {"r0", "r1"}


def test_a_tree_preempts_for_its_minimum_only() -> None:
    """V2, H3: victims go for two of three children; the third evicts nobody."""
    world = World(node("a"), node("b"), node("c"), preempts=True)
    world.create(pod(f"low-{number}", gpus=8, priority=-10) for number in range(3))
    assert len(world.settle().bound()) == 3
    world.create(replica("r0", priority=5), replica("r1", priority=5), replica("r2", priority=5))
    for _ in range(10):
        world.settle()
        world.advance(40)
    assert started_pods(world) == {"r0", "r1", "low"}


def started_pods(world: World) -> set[str]:
    """The first part of the names of bound pods."""
    return {each.rpartition("-")[0] for each in world.bound()}


def test_each_child_has_its_own_required_domain() -> None:
    """I9: replicas that each need a rack start in two racks, and B2 does not ask for one rack of
    both.
    """
    world = World(
        *(node(name, labels={"rack": rack}) for name, rack in (("a", "x"), ("b", "y"), ("c", "z")))
    )
    world.create(
        replica("r0", topology="rack"),
        replica("r1", topology="rack"),
        replica("r2", topology="rack"),
    )
    assert started(world.settle()) == {"r0", "r1", "r2"}
    racks = {
        name: {world.bound()[f"{name}-{number}"] for number in range(2)}
        for name in ("r0", "r1", "r2")
    }
    assert all(len(nodes) == 1 for nodes in racks.values())


def test_a_child_that_found_no_domain_beside_others_is_tried_first() -> None:
    """I9: the small child would take the only rack of the large one, which is then placed before
    it.
    """
    world = World(node("a", 8, labels={"rack": "x"}), node("b", 9, labels={"rack": "y"}))
    world.create(replica("r0", gpus=4, topology="rack"), replica("r1", 3, gpus=3, topology="rack"))
    assert started(world.settle()) == {"r0", "r1"}
    world = World(node("a", 9, labels={"rack": "x"}), node("b", 8, labels={"rack": "y"}))
    world.create(replica("r0", gpus=4, topology="rack"), replica("r1", 3, gpus=3, topology="rack"))
    assert started(world.settle()) == {"r0", "r1"}


def test_children_that_find_no_domains_in_turn_are_packed_together() -> None:
    """L13, L14: in turn each of the small children takes the only rack that is left for a large
    one.
    """
    racks = [
        ("a", 8, "x"),
        ("b", 5, "y"),
        ("c", 5, "y"),
        ("d", 9, "z"),
        ("e", 6, "w"),
        ("f", 6, "w"),
    ]
    world = World(*(node(name, gpus, labels={"rack": rack}) for name, gpus, rack in racks))
    world.create(
        replica("r0", gpus=4, topology="rack", least=4),
        replica("r1", gpus=5, topology="rack", least=4),
    )
    world.create(members("r2", 1, gpus=8, parent="svc", topology="rack"))
    world.create(members("r3", 1, gpus=9, parent="svc", topology="rack"))
    world.settle()
    assert len(world.bound()) == 6
    assert (world.bound()["r2-0"], world.bound()["r3-0"]) == ("a", "d")


@pytest.mark.parametrize("number", [6, 12])
def test_identical_children_are_one_kind(number: int) -> None:
    """L12: one rack too few for so many racks of one child each is refuted in one plan, not in all
    orders of them.
    """
    labels = [{"rack": f"r{each}"} for each in range(number)]
    world = World(*(node(f"n{each}", 5, labels=own) for each, own in enumerate(labels[1:])))
    world.add_nodes(node("small", 3, labels=labels[0]))
    world.create(
        *(replica(f"r{each:02}", gpus=2, topology="rack", least=number) for each in range(number))
    )
    world.turn()
    assert " pods of 2 nvidia.com/gpu in one rack; " in told(world, "r00")
    world.add_nodes(node("more", 4, labels={"rack": "more"}))
    assert len(started(world.settle())) == number


def test_a_rack_that_only_a_search_refutes_is_searched_once_for_all_identical_children() -> None:
    """L12: sums allow 3 + 3 + 2 GPUs in a rack of 4 + 4. That it is refuted in one plan excludes
    all orders of them.
    """
    number, racks = 9, [(5, 3)] * 8 + [(4, 4)]
    nodes = [
        node(f"n{n}{at}", gpus[at], labels={"rack": f"r{n}"})
        for n, gpus in enumerate(racks)
        for at in (0, 1)
    ]
    world = World(*nodes)
    for each in range(number):
        fields: dict[str, Any] = {
            "parent": "svc",
            "min_children": number,
            "topology": "rack",
            "min_member": 3,
        }
        world.create(
            members(f"r{each:02}", 2, gpus=3, **fields),
            members(f"r{each:02}", 1, first=2, gpus=2, **fields),
        )
    world.turn()
    assert "needs 3 pods in one rack; " in told(world, "r00")
    world.add_nodes(node("more", 8, labels={"rack": "more"}))
    assert len(started(world.settle())) == number


def zoned(*zones: str) -> list[Node]:
    """A node of 8 GPUs for each of these zones, in a rack of its own."""
    return [
        node(f"n{number}", labels={"zone": zone, "rack": f"r{number}"})
        for number, zone in enumerate(zones)
    ]


def test_a_tree_keeps_to_one_domain_and_its_children_to_theirs() -> None:
    """G1: the PodGroup of the parent's name requires a zone of the whole tree, each child a rack;
    later ones join.
    """
    world = World(*zoned("x", "y"))
    world.declare(pod_group("svc", None, gang_metadata=((keys.TOPOLOGY[0], "zone"),)))
    world.create(replica("r0", topology="rack"), replica("r1", topology="rack"), replica("r2"))
    assert started(world.settle()) == set()
    world.add_nodes(node("n2", labels={"zone": "y", "rack": "r2"}))
    assert started(world.settle()) == {"r0", "r1"}
    assert set(world.bound().values()) == {"n1", "n2"}
    assert "zone=y" in told(world, "r2")
    world.add_nodes(node("n3", labels={"zone": "y", "rack": "r3"}))
    assert started(world.settle()) == {"r0", "r1", "r2"}
    assert "n0" not in world.bound().values()


def test_a_lost_member_comes_back_into_the_domain_of_its_tree() -> None:
    """L8: the child that lost all its members joins its siblings' zone, though another zone has
    more room.
    """
    world = World(*zoned("x", "y", "y"))
    world.declare(pod_group("svc", None, gang_metadata=((keys.TOPOLOGY[0], "zone"),)))
    pods = world.create(replica("r0", topology="rack"), replica("r1"))
    assert started(world.settle()) == {"r0", "r1"}
    zone = {"n1", "n2"}
    assert set(world.bound().values()) == zone
    world.delete(*(each for each in pods if each.name.startswith("r1")))
    world.create(replica("r1"))
    assert set(world.settle().bound().values()) == zone


def test_a_plan_that_leaves_the_domain_of_the_tree_is_dropped() -> None:
    """B2: a node's label changes between plan and commit, so that two children would start in two
    zones.
    """
    world = World(*zoned("x", "x"))
    world.declare(pod_group("svc", None, gang_metadata=((keys.TOPOLOGY[0], "zone"),)))
    world.create(replica("r0", topology="rack"), replica("r1", topology="rack"))
    prepare(world.state, world.now_s, world.wall_s())
    given = world.state.plan_input(world.now_s, world.wall_s())
    assert given is not None
    planned = plan_of(given, world.now_s, limits=None, policy=None)
    assert len(planned.verdicts[0].binds) == 4
    world.state.apply(Applied(node("n1", labels={"zone": "y", "rack": "r1"})), now_s=world.now_s)
    actions = world.state.commit(planned, given.snapshot, now_s=world.now_s)
    assert not any(isinstance(each, Bind) for each in actions)
    assert started(world.settle()) == set()


def test_a_domain_of_the_tree_that_cannot_be_read_refuses_it() -> None:
    """A5: a typing error must not start the children in two zones."""
    world = World(*zoned("x", "y"))
    world.declare(pod_group("svc", None, gang_metadata=((keys.TOPOLOGY[0], "no label"),)))
    world.create(replica("r0"), replica("r1"))
    assert started(world.settle()) == set()
    assert "PodGroup ns/svc, the parent of gang ns/r0: gangsched.dev/topology" in told(world, "r0")
    assert reason(world, "r0") is Reason.INVALID_GANG


def test_a_tree_that_never_fits_says_so() -> None:
    """E1: no choice fits empty nodes; a kind that sums refute only at present leaves that open."""
    world = World(node("a"))
    world.create(replica("r0", gpus=16), replica("r1", gpus=9), replica("r2", gpus=4))
    world.settle()
    assert refusal(world, "r2").never
    world = World(node("a"), node("b"))
    world.create(pod("lone", gpus=8))
    world.settle()
    world.create(replica("r0", gpus=16), replica("r1", gpus=5), replica("r2", gpus=4))
    world.settle()
    assert not refusal(world, "r2").never


def test_the_group_outlives_its_first_child() -> None:
    """I9: children come and go; the nomination for the others goes on."""
    world = World(node("a"), node("b"), preempts=True)
    world.create(pod(f"low-{number}", gpus=8, priority=-10) for number in range(2))
    world.settle()
    pods = world.create(
        replica("r0", priority=5), replica("r1", priority=5), replica("r2", priority=5)
    )
    world.turn()
    record = world.state.registry.groups["tree:ns/svc"]
    world.delete(*(each for each in pods if each.name.startswith("r0")))
    world.settle()
    assert world.state.registry.groups["tree:ns/svc"] is record
    for _ in range(10):
        world.settle()
        world.advance(40)
    assert started_pods(world) == {"r1", "r2"}


@pytest.mark.parametrize("work", [700, 1_000, 2_000, 5_000])
def test_a_tree_that_needs_many_plans_is_decided(work: int) -> None:
    """L17: what was decided of parts and choices is kept; the tree is not refused for the work that
    it takes.
    """
    nodes = [node(f"n{number}") for number in range(6)]
    world = World(*nodes, limits=Limits(work=work))
    world.create(*(replica(f"r{number:02}", gpus=12 + number, least=2) for number in range(6)))
    world.create(*(replica(f"s{number:02}", gpus=8 - number, least=2) for number in range(8)))
    world.settle()
    assert {"s00", "s01"} <= started(world)
    assert all("too" not in told(world, f"r{number:02}") for number in range(6))


def test_the_commit_of_trees_shortens_the_plan() -> None:
    """I9: it makes the view of each whole tree anew, also of the children that are not needed."""
    world = World(node("a"), limits=Limits(work=10_000))
    for tree in range(20):
        for child in range(40):
            name = f"t{tree}-{child}"
            world.create(members(name, 1, gpus=9, parent=f"t{tree}", min_children=1))

    plan = world.turn()
    assert plan is not None
    decided = len(plan.verdicts)
    last = plan.work // decided
    assert decided > 1
    assert plan.work + COMMIT_OF_A_GANG * 39 * (decided - 1) <= 10_000 + last
    world.settle()
    assert not world.bound()


def test_a_member_above_a_minimum_leaves_the_room_that_others_are_evicted_for() -> None:
    """I9, V10: a child that runs takes nothing of what is being made for one that the
    tree needs.
    """
    world = World(node("a"), node("b"), preempts=True)
    world.create(replica("r0", priority=5, min_member=1))
    r1 = world.create(replica("r1", priority=5))
    world.settle()
    assert started(world) == {"r0", "r1"}
    world.delete(*r1)
    b = world.settle().bound()
    free = ({"a", "b"} - set(b.values())).pop()
    world.create(running(pod("low-0", gpus=4, priority=-10, grace_s=5), free))
    world.create(running(pod("low-1", gpus=4, priority=-10, grace_s=50), free))
    world.create(replica("r1", first=2, priority=5, min_member=2))
    world.settle().advance(1)
    assert world.state.preemptions.nominations.all()
    world.create(replica("r0", 1, first=2, priority=5, min_member=1))
    world.advance(20)
    assert "low-0" not in world.bound()
    assert "r0-2" in world.pending()
    world.advance(40)
    assert {"r1-2", "r1-3"} <= world.bound().keys()


def test_a_tree_that_takes_too_long_above_its_minimum_is_told_of_those_pods() -> None:
    """Q4: what its minimum needs is bound; what the others ask for is what wakes it."""
    world = World(node("a"))
    world.create(replica("r0", least=1), replica("r1", least=1))
    assert started(world.settle()) == {"r0"}

    state = world.state
    tree = state.registry.group(state.registry.group_of[f"{NAMESPACE}/r1"], world.now_s)
    before = Unfinished(group=tree.id, generation=tree.generation, plans=MOST_PLANS)
    (verdict,) = plan(state.snapshot(), [tree], now_s=world.now_s, unfinished=before).verdicts

    assert "too long for 2 pods with 1 different specification" in say(verdict.told).text
    assert len(verdict.needs) == 1
