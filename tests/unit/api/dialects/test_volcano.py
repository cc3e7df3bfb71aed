"""PodGroups of Volcano: each field honoured, refused or told (docs/semantics/dialects.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.dialects import DIALECTS
from gangsched.api.dialects.volcano import PHASES
from gangsched.api.keys import VOLCANO
from gangsched.api.podgroup import PodGroupPhase, parse_pod_group
from gangsched.model.objects import Phase, Pod, PodGroup
from gangsched.model.protocol import Replaced, Unread
from gangsched.state.groups import POD_GROUP_WAIT_S
from tests.builders import node, pod, pod_group
from tests.world import World

MARK = keys.VOLCANO + "/group-name"
OLD = "scheduling.k8s.io/group-name"


def read(**spec: Any) -> PodGroup:
    """PodGroup ns/g of Volcano with this spec, as the API server returns it."""
    metadata = {
        "namespace": "ns",
        "name": "g",
        "uid": "u",
        "creationTimestamp": "2024-05-01T12:00:01Z",
    }
    return parse_pod_group({"apiVersion": f"{VOLCANO}/v1beta1", "metadata": metadata, "spec": spec})


def told(group: PodGroup) -> dict[str, tuple[str, ...]]:
    """Everything that is said of it, by how it is said."""
    said = {
        name: getattr(group, name) for name in ("unsupported", "invalid", "not_used", "problems")
    }
    return {name: sentences for name, sentences in said.items() if sentences}


def test_minimum_and_resources_are_those_of_any_pod_group() -> None:
    """minMember and minResources count; nothing is told of them."""
    group = read(minMember=3, minResources={"cpu": "1500m", "nvidia.com/gpu": 8})
    assert (group.min_member, group.min_resources) == (3, (("cpu", 1500), ("nvidia.com/gpu", 8)))
    assert told(group) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"queue": ""},
        {"queue": "default"},
        {"queue": None},
        {"priorityClassName": ""},
        {"networkTopology": None},
        {"minTaskMember": {}},
        {"minTaskMember": None},
        {"subGroupPolicy": []},
        {"subGroupPolicy": None},
        {"fieldOfTomorrow": {"a": 1}},
    ],
)
def test_defaults_and_unknown_fields_ask_for_nothing(fields: dict[str, Any]) -> None:
    """A field at its default, and one that the kind does not have, are left."""
    assert told(read(minMember=2, **fields)) == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}},
            (
                "networkTopology of PodGroup ns/g asks for HyperNodes, which gangsched does not"
                " support: remove it, and set gangsched.dev/topology to a node label"
            ),
        ),
        ({"networkTopology": {}}, "networkTopology of PodGroup ns/g asks for HyperNodes"),
        ({"networkTopology": {"mode": 3}}, "networkTopology of PodGroup ns/g asks for HyperNodes"),
    ],
)
def test_what_cannot_be_honoured_refuses_and_names_the_field(
    fields: dict[str, Any], said: str
) -> None:
    """A2: hard topology is not honoured by half."""
    group = read(minMember=2, **fields)
    (sentence,) = group.unsupported
    assert sentence.startswith(said)
    assert told(group).keys() == {"unsupported"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("networkTopology", "hard"),
        ("networkTopology", [1]),
        ("minTaskMember", [2]),
        ("minTaskMember", {"worker": "9"}),
        ("minTaskMember", {"worker": 9, "ps": True}),
        ("minTaskMember", {"worker": 3, "ps": -1}),
        ("subGroupPolicy", {"a": 1}),
    ],
)
def test_a_level_or_tree_that_cannot_be_read_refuses(field: str, value: object) -> None:
    """A5: a typing error must not start a gang that asked for one domain in two."""
    group = read(minMember=2, **{field: value})
    (sentence,) = group.invalid
    assert sentence.startswith(f"spec.{field} ")
    assert "of PodGroup ns/g " in sentence
    assert told(group).keys() == {"invalid"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"queue": "research"}, 'queue "research" of PodGroup ns/g is not used'),
        (
            {"priorityClassName": "high"},
            'priorityClassName "high" of PodGroup ns/g is not used: gangsched uses',
        ),
        (
            {"networkTopology": {"mode": "soft"}},
            "networkTopology of PodGroup ns/g is ignored: it is only a preference",
        ),
        (
            {"minTaskMember": {"worker": 2, "ps": 1}},
            (
                "minTaskMember of PodGroup ns/g is not used: its minimums add up to 3, which"
                " exceeds minMember 2"
            ),
        ),
    ],
)
def test_what_only_prefers_or_concerns_others_is_told(fields: dict[str, Any], said: str) -> None:
    """A2: the gang starts, and an Event says what had no effect."""
    group = read(minMember=2, **fields)
    (sentence,) = group.not_used
    assert sentence.startswith(said)
    assert told(group).keys() == {"not_used"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("minMember", -1), ("minMember", "3"), ("queue", 7), ("priorityClassName", {})],
)
def test_other_bad_values_are_left_out_and_told(field: str, value: object) -> None:
    """E4: as of any PodGroup; without a minimum the gang is uninitialised."""
    group = read(**{"minMember": 2, field: value})
    assert told(group).keys() == {"problems"}
    assert group.problems[0].startswith(f"spec.{field} of PodGroup ns/g ")
    assert group.min_member == (None if field == "minMember" else 2)


def test_every_phase_has_one_of_volcano() -> None:
    """E3: a phase of ours is never written into a PodGroup of Volcano."""
    assert PHASES.keys() == set(PodGroupPhase)
    assert DIALECTS[VOLCANO].phases is PHASES
    assert set(PHASES.values()) <= {"Pending", "Inqueue", "Running", "Unknown", "Completed"}


# --- from message to report


def marked(number: int, mark: str = MARK) -> list[Pod]:
    """Pods that an annotation makes members of ns/g."""
    return [pod(f"g-{index}", gang_metadata=((mark, "g"),)) for index in range(number)]


def volcano(min_member: int | None = 2, **fields: Any) -> PodGroup:
    """A PodGroup ns/g of Volcano."""
    return pod_group("g", min_member, api_group=keys.VOLCANO, version="v1beta1", **fields)


@pytest.mark.parametrize("mark", [MARK, OLD])
def test_a_gang_of_volcano_starts_whole_and_has_its_status(mark: str) -> None:
    """A3, E3: with both of its annotations; the status has the phase and the counts of Volcano, and
    no others.
    """
    world = World(node("a", 2))
    world.declare(volcano())
    first, second = marked(2, mark)
    world.create(first)
    assert world.told().bound() == {}
    assert world.status("g")["phase"] == "Pending"
    world.create(second)
    assert set(world.settle().told().bound()) == {"g-0", "g-1"}
    status = world.status("g")
    assert status["phase"] == "Running"
    assert status.keys() == {"phase", "running", "succeeded", "failed", "conditions"}
    assert world.gang_condition("g", "Scheduled") == "True"
    assert all("observedGeneration" not in each for each in status["conditions"])


def test_the_object_of_another_mark_is_not_read() -> None:
    """A3: one of scheduler-plugins does not stand for Volcano's, and comes before it for the mark
    that both share.
    """
    world = World(node("a", 8))
    world.declare(pod_group("g", 1))
    world.create(marked(1))
    world.advance(POD_GROUP_WAIT_S).told()
    assert world.bound() == {}
    world.declare(volcano(1))
    assert set(world.settle().bound()) == {"g-0"}
    other = World(node("a", 8))
    other.declare(volcano(2), pod_group("g", 1))
    other.create(marked(1, OLD))
    assert set(other.settle().bound()) == {"g-0"}


@pytest.mark.parametrize("mark", [MARK, OLD])
def test_a_kind_that_may_not_be_read_is_told_until_it_may_be(mark: str) -> None:
    """A1: not that the object is missing, which nobody knows, nor that there is no minimum."""
    world = World(node("a", 8))
    world.say(Unread(PodGroup, keys.VOLCANO, forbidden=True))
    pods = world.create(marked(2, mark))
    world.advance(POD_GROUP_WAIT_S).told()
    text = "gangsched has no permission to read PodGroups of scheduling.volcano.sh"
    assert world.condition(pods[0]) == ("Unsupported", text)
    world.say(Replaced(PodGroup, (), keys.VOLCANO))
    world.told()
    assert world.condition(pods[0])[0] == ("PodGroupMissing" if mark == MARK else "InvalidGang")
    world.declare(volcano())
    assert set(world.settle().bound()) == {"g-0", "g-1"}


def test_a_minimum_on_the_pods_needs_no_object() -> None:
    """A4: mark 5 is complete with it, whatever may not be read."""
    world = World(node("a", 8))
    world.say(Unread(PodGroup, keys.VOLCANO, forbidden=True))
    world.create(pod("g-0", gang_metadata=tuple(sorted(((OLD, "g"), (keys.MIN[2], "1"))))))
    assert set(world.settle().bound()) == {"g-0"}


@pytest.mark.parametrize(
    ("field", "reason"), [("unsupported", "Unsupported"), ("invalid", "InvalidGang")]
)
def test_a_refused_gang_waits_and_starts_when_the_field_is_gone(field: str, reason: str) -> None:
    """A2, A5: the sentence is the reason of its pods."""
    world = World(node("a", 8))
    refused: Any = {field: ("networkTopology of PodGroup ns/g asks for HyperNodes",)}
    asks = volcano(**refused)
    world.declare(asks)
    pods = world.create(marked(2))
    world.told()
    assert world.bound() == {}
    assert world.condition(pods[0]) == (
        reason,
        "networkTopology of PodGroup ns/g asks for HyperNodes",
    )
    world.declare(msgspec.structs.replace(asks, **{field: ()}, resource_version="2"))
    assert set(world.settle().bound()) == {"g-0", "g-1"}


def of_tasks(number: int = 0, **tasks: int) -> list[Pod]:
    """So many pods of each task, named after it from `number` on."""
    return [
        pod(
            f"g-{task}-{each}",
            gang_metadata=tuple(sorted(((MARK, "g"), (keys.VOLCANO_TASK, task)))),
        )
        for task, count in tasks.items()
        for each in range(number, number + count)
    ]


def test_each_task_has_its_minimum_before_members_beyond_it_start() -> None:
    """minTaskMember: pods of one task do not stand in for those of another; beyond the minimum each
    starts alone.
    """
    world = World(node("a", 3))
    world.declare(read(minMember=3, minTaskMember={"ps": 1, "worker": 2}))
    pods = world.create(of_tasks(worker=4))
    world.settle().told()
    assert world.bound() == {}
    text = (
        "waiting for members of gang ns/g (minTaskMember: 1 of task ps, 2 of task worker): not all"
        " of them are ready; see PodGroup ns/g"
    )
    assert {world.condition(each) for each in pods} == {("WaitingForMembers", text)}
    world.create(of_tasks(ps=1))
    assert set(world.settle().bound()) == {"g-ps-0", "g-worker-0", "g-worker-1"}
    world.add_nodes(node("b", 1))
    assert len(world.settle().bound()) == 4
    world.create(of_tasks(1, ps=1))
    world.add_nodes(node("c", 2))
    assert len(world.settle().bound()) == 6


def test_a_member_that_its_task_lacks_comes_before_those_beyond_minimums() -> None:
    """minTaskMember: after a lost bind or member, a waiting worker does not take the room of the
    only zero.
    """
    world = World(node("a", 3))
    world.declare(read(minMember=3, minTaskMember={"zero": 1, "worker": 2}))
    (lost,) = world.create(of_tasks(zero=1))
    world.create(of_tasks(worker=4))
    assert len(world.settle().bound()) == 3
    world.delete(lost)
    world.create(of_tasks(1, zero=1))
    assert set(world.settle().bound()) == {"g-worker-0", "g-worker-1", "g-zero-1"}


def sized(sizes: Mapping[str, int], task: str) -> list[Pod]:
    """One pod of a task by name, each with so many GPUs."""
    marks = tuple(sorted(((MARK, "g"), (keys.VOLCANO_TASK, task))))
    return [pod(f"g-{name}", gpus=gpus, gang_metadata=marks) for name, gpus in sizes.items()]


def test_a_minimum_above_those_of_tasks_needs_further_members_of_any() -> None:
    """minTaskMember and minMember: each task its own, and so many members in all; no pod counts
    twice.
    """
    world = World(node("a", 8))
    world.declare(read(minMember=4, minTaskMember={"ps": 1, "worker": 1}))
    pods = world.create(of_tasks(worker=5))
    world.settle().told()
    text = (
        "waiting for members of gang ns/g (minTaskMember: 1 of task ps, 1 of task worker, 2 more):"
        " not all of them are ready"
    )
    assert {world.condition(each)[1].partition(";")[0] for each in pods} == {text}
    world.create(of_tasks(ps=1))
    assert len(world.settle().bound()) == 6
    short = World(node("a", 3))
    short.declare(read(minMember=4, minTaskMember={"ps": 1, "worker": 1}))
    short.create(of_tasks(ps=2, worker=4))
    assert short.settle().bound() == {}
    short.add_nodes(node("b", 1))
    bound = short.settle().bound()
    assert len(bound) == 4
    assert {"g-ps-0", "g-worker-0"} <= set(bound)


def test_the_smallest_members_are_those_that_a_minimum_adds() -> None:
    """minTaskMember: which further ones count is not searched, so those that fit most often do."""
    world = World(node("a", 4))
    world.declare(read(minMember=3, minTaskMember={"worker": 1}))
    world.create(
        sized({"w-0": 2, "w-1": 2, "w-2": 2}, "worker"), sized({"h-0": 1, "h-1": 1}, "helper")
    )
    assert set(world.settle().bound()) == {"g-w-0", "g-h-0", "g-h-1"}


def test_no_minimum_of_any_task_leaves_the_gangs_own() -> None:
    """minTaskMember: with 0 for each task, minMember alone counts."""
    world = World(node("a", 2))
    world.declare(read(minMember=2, minTaskMember={"worker": 0}))
    world.create(of_tasks(helper=2))
    assert len(world.settle().bound()) == 2


def test_pods_of_no_task_with_a_minimum_are_told_what_they_wait_for() -> None:
    """minTaskMember: they count for no task, and start once all of these have their minimum."""
    world = World(node("a", 8))
    world.declare(read(minMember=2, minTaskMember={"worker": 2}))
    pods = world.create(of_tasks(helper=2), marked(1))
    world.settle().told()
    assert {world.condition(each)[0] for each in pods} == {"WaitingForMembers"}
    world.create(of_tasks(worker=2))
    assert len(world.settle().bound()) == 5


def test_a_minimum_that_pods_state_counts_instead_of_those_of_tasks() -> None:
    """I3: with a minimum below the sum, tasks do not count."""
    world = World(node("a", 8))
    world.declare(read(minMember=3, minTaskMember={"ps": 1, "worker": 2}))
    stated = tuple(sorted(((MARK, "g"), (keys.VOLCANO_TASK, "worker"), (keys.MIN[0], "2"))))
    world.create(pod(f"g-{each}", gang_metadata=stated) for each in range(2))
    assert set(world.settle().bound()) == {"g-0", "g-1"}


def test_a_gang_that_runs_is_not_stopped_by_a_refusal() -> None:
    """A2: its members run on; one that comes later is told why it waits."""
    world = World(node("a", 8))
    world.declare(volcano())
    world.create(marked(2))
    assert set(world.settle().bound()) == {"g-0", "g-1"}
    world.declare(volcano(unsupported=("minTaskMember …",), generation=2))
    (late,) = world.create(marked(3)[2:])
    assert set(world.settle().told().bound()) == {"g-0", "g-1"}
    assert world.condition(late) == ("Unsupported", "minTaskMember …")


def test_what_is_not_used_is_told_once() -> None:
    """A2: an Event on the object, which other Events do not repeat."""
    world = World(node("a", 1))
    world.declare(volcano(not_used=('queue "research" of PodGroup ns/g is not used',)))
    world.create(marked(2))
    world.told()
    world.add_nodes(node("b", 8))
    assert set(world.settle().told().bound()) == {"g-0", "g-1"}
    told = list(world.events("NotUsed"))
    assert [(where, text) for where, _, text in told] == [
        ("PodGroup ns/g", 'queue "research" of PodGroup ns/g is not used')
    ]


def test_minimums_of_tasks_hold_after_the_start() -> None:
    """minTaskMember, B5: a waiting worker does not take the room of the only ps in the moment
    before its controller replaces it; the gang is below its minimum until then.
    """
    world = World(node("a", 3))
    world.declare(read(minMember=3, minTaskMember={"ps": 1, "worker": 2}))
    (lost,) = world.create(of_tasks(ps=1))
    world.create(of_tasks(worker=3))
    assert len(world.settle().bound()) == 3

    world.delete(lost)
    world.told()
    assert set(world.bound()) == {"g-worker-0", "g-worker-1"}
    world.add_nodes(node("b", 1))
    world.told()
    assert set(world.bound()) == {"g-worker-0", "g-worker-1"}, "the room is the ps's"

    world.create(of_tasks(1, ps=1))
    world.told()
    assert {"g-ps-1", "g-worker-0", "g-worker-1"} <= set(world.bound())
    assert len(world.bound()) == 4, "the further worker follows"


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_task_that_has_succeeded_lacks_nobody(*, is_gone: bool) -> None:
    """minTaskMember, I6: further workers start when the ps has done its work."""
    world = World(node("a", 3))
    world.declare(read(minMember=3, minTaskMember={"ps": 1, "worker": 2}))
    (ps,) = world.create(of_tasks(ps=1))
    world.create(of_tasks(worker=3))
    world.settle()

    world.update(world.pods[ps.uid], phase=Phase.SUCCEEDED)
    if is_gone:
        world.delete(ps)

    assert set(world.settle().bound()) == {"g-worker-0", "g-worker-1", "g-worker-2"}
