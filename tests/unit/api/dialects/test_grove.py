"""PodGangs of Grove: a gang for each podgroup, which are a tree or are refused
(docs/semantics/dialects.md).
"""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.api import keys
from gangsched.api.dialects.grove import PHASES
from gangsched.api.pod_metadata import pod_gang_metadata
from gangsched.api.podgroup import PodGroupPhase, parse_pod_group
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.protocol import Replaced, SetPodGroupStatus, Unread
from gangsched.state.groups import POD_GROUP_WAIT_S
from tests.builders import node, pod
from tests.world import World

RACK, ZONE = "example.com/rack", "topology.kubernetes.io/zone"
CONFIGS = "topologyConstraintGroupConfigs of PodGang ns/svc"


def podgroup(name: str, minimum: Any = 1, **fields: Any) -> dict[str, Any]:
    """An entry of `podgroups`."""
    return {"name": name, "minReplicas": minimum, "podReferences": [], **fields}


def pack(required: Any = None, preferred: Any = None) -> dict[str, Any]:
    """A topologyConstraint."""
    return {"packConstraint": {"required": required, "preferred": preferred}}


def config(names: list[Any], required: Any = None) -> dict[str, Any]:
    """An entry of `topologyConstraintGroupConfigs`."""
    return {"name": "c", "podGroupNames": names, "topologyConstraint": pack(required)}


def read(
    *podgroups: Any, uid: str = "u", status: Any = None, annotations: Any = None, **spec: Any
) -> PodGroup:
    """PodGang ns/svc with these podgroups, as the API server returns it."""
    metadata = {
        "namespace": "ns",
        "name": "svc",
        "uid": uid,
        "creationTimestamp": "2024-05-01T12:00:01Z",
    }
    body = {
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"podgroups": list(podgroups), **spec},
    }
    return parse_pod_group({"apiVersion": f"{keys.GROVE}/v1alpha1", **body, "status": status or {}})


def clique(name: str, number: int, first: int = 0) -> list[Pod]:
    """Pods of a podgroup as Grove labels them."""
    labels = {keys.GROVE_GANG: "svc", keys.GROVE_CLIQUE: name}
    metadata = pod_gang_metadata(labels, {})
    return [
        pod(f"{name}-{index}", gang_metadata=metadata) for index in range(first, first + number)
    ]


def test_each_podgroup_is_a_child_of_one_tree() -> None:
    """I9: its minimum is minReplicas, and all of them start together."""
    whole = read(podgroup("svc-b", 2), podgroup("svc-a", 1))
    assert [(part.id, part.min_member, part.of_object) for part in whole.parts] == [
        ("ns/svc-a", 1, "svc"),
        ("ns/svc-b", 2, "svc"),
    ]
    stated = {(keys.PARENT[0], "svc")}
    assert [set(part.gang_metadata) for part in whole.parts] == [stated, stated]
    assert (whole.unsupported, whole.invalid, whole.not_used, whole.problems) == ((), (), (), ())


def test_levels_of_the_whole_are_those_of_the_tree() -> None:
    """Required binds the tree; preferred is a part's own first; an annotation comes before the
    field (A4).
    """
    whole = read(
        podgroup("a", topologyConstraint=pack(preferred=RACK)),
        podgroup("b"),
        topologyConstraint=pack(ZONE, ZONE),
    )
    assert {(part.topology, part.tree_topology) for part in whole.parts} == {((), (ZONE,))}
    preferred = [dict(part.gang_metadata)[keys.PREFERRED_TOPOLOGY[0]] for part in whole.parts]
    assert preferred == [RACK, ZONE]
    stated = read(
        podgroup("a"),
        topologyConstraint=pack(None, ZONE),
        annotations={keys.PREFERRED_TOPOLOGY[0]: RACK},
    )
    assert dict(stated.parts[0].gang_metadata)[keys.PREFERRED_TOPOLOGY[0]] == RACK


def test_the_level_of_an_only_podgroup_is_that_of_the_whole() -> None:
    """There is no sibling that it would bind."""
    whole = read(podgroup("a", topologyConstraint=pack(RACK)), topologyConstraint=pack(ZONE))
    assert [part.topology for part in whole.parts] == [(RACK, ZONE)]
    assert whole.unsupported == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"topologyConstraint": None},
        {"topologyConstraint": {}},
        {"topologyConstraint": {"packConstraint": None}},
        {"topologyConstraint": pack("", "")},
        {"topologyConstraintGroupConfigs": []},
        {"priorityClassName": ""},
        {"reuseReservationRef": None},
        {"fieldOfTomorrow": [1]},
    ],
)
def test_defaults_and_unknown_fields_ask_for_nothing(spec: dict[str, Any]) -> None:
    """A2: nothing is told of them."""
    whole = read(podgroup("a"), podgroup("b"), **spec)
    assert (whole.unsupported, whole.invalid, whole.problems) == ((), (), ())
    assert [part.not_used for part in whole.parts] == [(), ()]


def test_a_podgroup_without_a_minimum_shares_the_required_domain() -> None:
    """I9: it is in the tree where a level binds it, of the whole or of a config; elsewhere its pods
    start alone.
    """
    entries = (podgroup("a"), podgroup("b"), podgroup("c", 0))
    whole = read(*entries, topologyConstraint=pack(ZONE))
    assert {dict(part.gang_metadata)[keys.PARENT[0]] for part in whole.parts} == {"svc"}
    assert {part.tree_topology for part in whole.parts} == {(ZONE,)}
    some = read(*entries, topologyConstraintGroupConfigs=[config(["a", "c"], RACK)])
    parents = {part.name: dict(part.gang_metadata).get(keys.PARENT[0], "") for part in some.parts}
    assert parents == {
        "a": "svc.together-0",
        "b": "svc",
        "c": "svc.together-0",
        "svc.together-0": "svc",
    }
    alone = read(*entries)
    assert [keys.PARENT[0] in dict(part.gang_metadata) for part in alone.parts] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("number", [1, 2], ids=["one minimum", "two minimums"])
def test_pods_without_a_minimum_start_in_the_domain_of_the_whole(number: int) -> None:
    """I9: after all minimums, and nowhere else; with one podgroup that has a minimum as with
    several.
    """
    world = World(*(node(f"n{index}", 2, labels={RACK: f"r{index % 2}"}) for index in range(4)))
    names = ["a", "b"][:number]
    world.declare(
        read(
            *(podgroup(name, 1) for name in names), podgroup("c", 0), topologyConstraint=pack(RACK)
        )
    )
    world.create(clique("c", 6))
    assert world.advance(2).bound() == {}
    world.create(*(clique(name, 1) for name in names))
    world.advance(2)
    assert len(world.bound()) == 4
    assert {*names} <= {name.partition("-")[0] for name in world.bound()}
    assert len({world.nodes[at].labels[RACK] for at in world.bound().values()}) == 1


@pytest.mark.parametrize(
    ("podgroups", "spec", "said"),
    [
        (
            [podgroup("a"), {"minReplicas": 1}],
            {},
            "a podgroup of PodGang ns/svc has no name, or the name of another one",
        ),
        (
            [podgroup("a"), "b"],
            {},
            "a podgroup of PodGang ns/svc has no name, or the name of another one",
        ),
        (
            [podgroup("a"), podgroup("a")],
            {},
            "a podgroup of PodGang ns/svc has no name, or the name of another one",
        ),
        (
            [podgroup("a"), podgroup("b", "two")],
            {},
            'minReplicas "two" of podgroup b of PodGang ns/svc is not a count',
        ),
        (
            [podgroup("a", True)],
            {},
            'minReplicas "True" of podgroup a of PodGang ns/svc is not a count',
        ),
        (
            [podgroup("a", -1)],
            {},
            'minReplicas "-1" of podgroup a of PodGang ns/svc is not a count',
        ),
        (
            [podgroup("a")],
            {"topologyConstraint": pack("no label")},
            "topologyConstraint of PodGang ns/svc names a",
        ),
        (
            [podgroup("a")],
            {"topologyConstraint": pack(7)},
            "topologyConstraint of PodGang ns/svc names a level",
        ),
        (
            [podgroup("a")],
            {"topologyConstraint": [RACK]},
            "topologyConstraint of PodGang ns/svc cannot be read",
        ),
        (
            [podgroup("a", topologyConstraint=1)],
            {},
            "topologyConstraint of podgroup a of PodGang ns/svc can",
        ),
        ([podgroup("a")], {"topologyConstraintGroupConfigs": 1}, f"{CONFIGS} cannot be read"),
        (
            [podgroup("a")],
            {"topologyConstraintGroupConfigs": [1]},
            f"{CONFIGS} does not name podgroups of this PodGang",
        ),
        (
            [podgroup("a")],
            {"topologyConstraintGroupConfigs": [config([{}])]},
            f"{CONFIGS} does not name",
        ),
        (
            [podgroup("a")],
            {"topologyConstraintGroupConfigs": [config(["x"])]},
            f"{CONFIGS} does not name",
        ),
        (
            [podgroup("a")],
            {"topologyConstraintGroupConfigs": [config(["a"])] * 2},
            f"{CONFIGS} names a podgroup twice",
        ),
        (
            [podgroup("a")],
            {"topologyConstraintGroupConfigs": [config(["a"], 7)]},
            f"{CONFIGS} names a level that is not a label key",
        ),
    ],
)
def test_a_tree_or_level_that_cannot_be_read_refuses(
    podgroups: list[Any], spec: dict[str, Any], said: str
) -> None:
    """A5: every part that can be named waits."""
    whole = read(*podgroups, **spec)
    assert whole.parts
    assert {part.invalid for part in whole.parts} == {whole.invalid}
    assert whole.invalid[0].startswith(said)


def test_a_podgroup_without_a_minimum_is_not_waited_for() -> None:
    """A part of minimum 0 is ready as it is; its members start each by itself, whether or not it
    has any.
    """
    whole = read(podgroup("a", 0), podgroup("b", 1))
    assert [(part.name, part.speaks) for part in whole.parts] == [("b", True), ("a", False)]
    world = World(node("n", 8))
    world.declare(whole)
    world.create(clique("b", 1))
    assert set(world.settle().told().bound()) == {"b-0"}
    assert scheduled(world) == ("True", "Scheduled")
    world.create(clique("a", 1))
    assert set(world.settle().bound()) == {"a-0", "b-0"}


def test_podgroups_that_are_no_list_make_no_gang() -> None:
    """A5: their pods wait for them."""
    metadata = {"namespace": "ns", "name": "svc", "uid": "u"}
    body = {
        "apiVersion": f"{keys.GROVE}/v1alpha1",
        "metadata": metadata,
        "spec": {"podgroups": {"a": 1}},
    }
    whole = parse_pod_group(body)
    assert whole.parts == ()
    assert whole.invalid[0].startswith("spec.podgroups ")


@pytest.mark.parametrize(
    "spec", [{"priorityClassName": "high"}, {"reuseReservationRef": {"name": "old"}}]
)
def test_what_has_no_effect_is_told_by_the_first_part(spec: dict[str, Any]) -> None:
    """A2: once, not for each podgroup."""
    first, second = read(podgroup("a"), podgroup("b"), **spec).parts
    assert [sentence.split(" ")[0] for sentence in first.not_used] == list(spec)
    assert second.not_used == ()


def test_every_phase_has_one_of_grove() -> None:
    """E3: a phase of ours is never written into a PodGang."""
    assert PHASES.keys() == set(PodGroupPhase)
    assert set(PHASES.values()) <= {"Pending", "Starting", "Running"}


def test_a_clique_without_its_gang_is_no_mark() -> None:
    """A3: the PodGang's label is what Grove's gangs have."""
    assert pod_gang_metadata({keys.GROVE_CLIQUE: "a"}, {}) == ()
    assert pod_gang_metadata({keys.GROVE_CLIQUE: "a", keys.GROVE_GANG: ""}, {}) == ()


# --- from message to report


def status(world: World) -> dict[str, Any]:
    """The status last written to the PodGang."""
    written = [each for each in world.reports if isinstance(each, SetPodGroupStatus)]
    assert {each.name for each in written} == {"svc"}
    return dict(written[-1].status)


def scheduled(world: World) -> tuple[str, str]:
    """Status and reason of the PodGang's condition Scheduled."""
    (found,) = [each for each in status(world)["conditions"] if each["type"] == "Scheduled"]
    return found["status"], found["reason"]


def test_levels_of_one_podgroup_or_all_may_be_configured() -> None:
    """A config of one podgroup is as its own constraint, one of all as that of the whole."""
    configs = [config(["a"], RACK)]
    whole = read(podgroup("a"), podgroup("b"), topologyConstraintGroupConfigs=configs)
    assert [part.topology for part in whole.parts] == [(RACK,), ()]
    whole = read(
        podgroup("a"), podgroup("b"), topologyConstraintGroupConfigs=[config(["b", "a"], ZONE)]
    )
    assert {(part.topology, part.tree_topology) for part in whole.parts} == {((), (ZONE,))}
    assert (whole.unsupported, whole.invalid) == ((), ())


def test_some_podgroups_may_require_a_domain_together() -> None:
    """A config of two of three podgroups is a composite between them and the whole, which may
    require a level, too.
    """
    configs = [config(["a", "b"], RACK)]
    whole = read(
        *(podgroup(name) for name in "abc"),
        topologyConstraint=pack(ZONE),
        topologyConstraintGroupConfigs=configs,
    )
    assert (whole.unsupported, whole.invalid) == ((), ())
    assert [
        (part.name, dict(part.gang_metadata)[keys.PARENT[0]], part.topology) for part in whole.parts
    ] == [
        ("a", "svc.together-0", ()),
        ("b", "svc.together-0", ()),
        ("c", "svc", ()),
        ("svc.together-0", "svc", (RACK,)),
    ]
    racks = ["xp", "xq", "yr", "yr", "ys"]
    world = World(
        *(node(f"n{n}", 1, labels={ZONE: at[0], RACK: at}) for n, at in enumerate(racks[:3]))
    )
    world.declare(whole)
    world.create(clique("a", 1), clique("b", 1), clique("c", 1))
    assert world.settle().bound() == {}
    world.add_nodes(node("n3", 1, labels={ZONE: "y", RACK: "yr"}))
    assert world.settle().bound() == {}
    world.add_nodes(node("n4", 1, labels={ZONE: "y", RACK: "ys"}))
    bound = world.settle().told().bound()
    assert ({bound["a-0"], bound["b-0"]}, bound["c-0"]) == ({"n2", "n3"}, "n4")
    assert scheduled(world) == ("True", "Scheduled")


def test_levels_are_kept_at_three_places() -> None:
    """A zone of the whole, a rack of one podgroup by itself, and of another by a config."""
    spec: dict[str, Any] = {
        "topologyConstraint": pack(ZONE),
        "topologyConstraintGroupConfigs": [config(["b"], RACK)],
    }
    world = World(
        *(
            node(f"n{n}", 2, labels={ZONE: at[0], RACK: at})
            for n, at in enumerate(("xp", "xq", "yr", "ys"))
        )
    )
    world.declare(
        read(
            podgroup("a", 2, topologyConstraint=pack(RACK)),
            podgroup("b", 2),
            podgroup("c", 1),
            **spec,
        )
    )
    world.create(clique("a", 2), clique("b", 2), clique("c", 1))
    assert world.settle().bound() == {}
    world.add_nodes(node("n4", 1, labels={ZONE: "y", RACK: "t"}))
    bound = world.settle().bound()
    assert [
        {bound[f"{name}-{n}"] for n in range(number)}
        for name, number in (("a", 2), ("b", 2), ("c", 1))
    ] in ([{"n2"}, {"n3"}, {"n4"}], [{"n3"}, {"n2"}, {"n4"}])


def test_a_pod_gang_starts_whole_and_says_so() -> None:
    """I4: no podgroup starts without the minimum of every other; members above it follow."""
    world = World(node("a", 3))
    world.declare(
        read(podgroup("a", 1), podgroup("b", 2), status={"phase": "Pending", "conditions": []})
    )
    world.create(clique("a", 1))
    assert world.settle().told().bound() == {}
    (short,) = world.create(clique("b", 1))
    assert world.settle().told().bound() == {}
    assert (
        world.condition(short)[1]
        == "waiting for members of gang ns/b: fewer than 2 are ready; see PodGang ns/svc"
    )
    assert scheduled(world) == ("False", "WaitingForMembers")
    world.create(clique("b", 2, first=1))
    assert set(world.settle().told().bound()) >= {"a-0", "b-0", "b-1"}
    assert scheduled(world) == ("True", "Scheduled")
    assert "phase" not in status(world)


def test_the_phase_is_written_where_nobody_wrote_one() -> None:
    """E3: Grove's definition requires it."""
    world = World(node("a", 3))
    world.declare(read(podgroup("a", 2)))
    world.create(clique("a", 1))
    world.told()
    assert status(world)["phase"] == "Pending"


def test_a_podgroup_that_goes_is_missed_and_one_that_comes_is_awaited() -> None:
    """I5: edits of the list take effect, and a PodGang that is gone takes all of its
    gangs along.
    """
    world = World(node("a", 8))
    world.declare(read(podgroup("a", 1), podgroup("b", 2)))
    world.create(clique("a", 1))
    assert world.settle().told().bound() == {}
    world.declare(read(podgroup("a", 1)))
    assert set(world.settle().bound()) == {"a-0"}
    assert "ns/b" not in world.state.registry.gangs
    world.withdraw(read(podgroup("a", 1), uid="of an older one"))
    (late,) = world.create(clique("a", 1, first=1))
    assert set(world.settle().bound()) == {"a-0", "a-1"}
    world.withdraw(read(podgroup("a", 1)))
    assert not world.state.registry.gangs["ns/a"].pod_groups
    world.say(Replaced(PodGroup, (read(podgroup("a", 1), podgroup("c", 1)),), keys.GROVE))
    assert world.state.registry.gangs["ns/c"].pod_groups
    world.say(Replaced(PodGroup, (), keys.GROVE))
    world.settle()
    assert not world.state.registry.gangs["ns/a"].pod_groups
    assert late.key == "ns/a-1"


def test_refused_parts_wait_and_the_object_says_why() -> None:
    """A2: none of its gangs starts."""
    world = World(node("a", 8))
    world.declare(
        read(
            podgroup("a"), podgroup("b"), topologyConstraintGroupConfigs=[config(["a", "x"], RACK)]
        )
    )
    pods = world.create(clique("a", 1), clique("b", 1))
    world.settle().told()
    assert world.bound() == {}
    assert {world.condition(each)[0] for each in pods} == {"InvalidGang"}
    assert scheduled(world) == ("False", "InvalidGang")


def test_a_kind_that_may_not_be_read_is_told() -> None:
    """A1: its pods wait."""
    world = World(node("a", 8))
    world.say(Unread(PodGroup, keys.GROVE, forbidden=True))
    (waiting,) = world.create(clique("a", 1))
    world.advance(POD_GROUP_WAIT_S).told()
    text = "gangsched has no permission to read PodGangs of scheduler.grove.io"
    assert world.condition(waiting) == ("Unsupported", text)
