"""The debug view: everything that is known of a gang, as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from msgspec import structs

from gangsched.api import keys
from gangsched.model.objects import Phase
from gangsched.model.reservation import Blocker, Reservations, Reserved
from gangsched.state.debug_view import describe_gang, list_gangs, list_reservations
from tests.builders import members, node, pod, pod_group
from tests.world import World


def described(world: World, gang: str) -> dict[str, Any]:
    """A gang as the page shows it: through JSON and back."""
    found = describe_gang(world.state, gang, now_s=world.now_s)
    assert found is not None
    shown: dict[str, Any] = json.loads(json.dumps(found))
    return shown


def names(gang: dict[str, Any], kind: str) -> list[str]:
    """The pods in one of the lists of members."""
    return [member["pod"] for member in gang["members"].get(kind, [])]


def test_every_value_comes_with_its_source() -> None:
    """I3: each value of a gang's spec is shown with where it was stated, defaults among them."""
    world = World(node("a"))
    world.declare(pod_group("g", 2, schedule_timeout_s=90))
    world.create(members("g", 2, pod_group=True, mode="NonStrict"))
    spec = described(world.settle(), "ns/g")["spec"]
    assert spec["min"] == {"value": 2, "source": "spec.minMember of PodGroup ns/g"}
    assert spec["wait time"] == {
        "value": 90,
        "source": "spec.scheduleTimeoutSeconds of PodGroup ns/g",
    }
    assert spec["mode"]["value"] == "NonStrict"
    assert spec["mode"]["source"].endswith("/mode of pod ns/g-0")
    assert spec["match policy"] == {"value": "once-satisfied", "source": "default"}
    stated = world.state.registry.gangs["ns/g"].spec
    assert stated is not None
    assert list(spec) == [name for name, _ in stated.sources]
    assert all(shown["value"] is not None for shown in spec.values()), spec


def test_values_that_few_gangs_state_are_shown() -> None:
    """I3: they are there only where they are stated, as they were read."""
    stated = {
        keys.AVOID_BAD_NODES: ("avoid bad nodes", "3", 3),
        keys.DISRUPTION: ("disruption", "all", "all"),
        keys.KEEP_ROOM: ("keep room", "false", False),
        keys.PROVISIONING_CLASS: ("provisioning class", "queued", "queued"),
    }
    texts = tuple(sorted((key, text) for (key,), (_, text, _) in stated.items()))
    world = World(node("a"))
    world.declare(pod_group("g", 2, gang_metadata=texts), pod_group("h", 2))
    for gang in "gh":
        world.create(members(gang, 2, pod_group=True))

    world.settle()
    spec = described(world, "ns/g")["spec"]
    for name, _, value in stated.values():
        assert spec[name]["value"] == value
        assert spec[name]["source"].endswith("of PodGroup ns/g")

    assert {name for name, _, _ in stated.values()}.isdisjoint(described(world, "ns/h")["spec"])


def test_members_are_sorted_by_what_has_become_of_them() -> None:
    """Each member is in exactly one list, with its node where it has one."""
    world = World(node("a", 8))
    world.create([pod("busy", gpus=7, node_name="a", scheduler_name="other")])
    world.create(members("g", 2, mode="NonStrict", min_member=3))
    world.create(members("g", 1, first=2, min_member=3, gated=True))
    world.create(members("g", 1, first=3, min_member=3, deleting=True))
    world.create(members("g", 1, first=4, min_member=3, scheduler_name="other"))
    world.create(members("g", 1, first=5, min_member=3, node_name="gone", phase=Phase.FAILED))
    world.create(members("h", 1, gpus=0, node_name="a", phase=Phase.RUNNING))
    world.create(members("g", 1, first=6, mode="NonStrict", min_member=3))
    gang = described(world.settle(), "ns/g")
    assert gang["members"]["held"] == [
        {"pod": "ns/g-0", "uid": gang["members"]["held"][0]["uid"], "node": "a"}
    ]
    assert names(gang, "pending") == ["ns/g-1", "ns/g-6"]
    assert [names(gang, kind) for kind in ("gated", "terminating", "foreign", "failed")] == [
        ["ns/g-2"],
        ["ns/g-3"],
        ["ns/g-4"],
        ["ns/g-5"],
    ]
    assert sum(gang["counts"].values()) == 7
    assert names(described(world, "ns/h"), "bound") == ["ns/h-0"]


def test_a_holding_gang_shows_its_round_its_clock_and_its_verdict() -> None:
    """R4, T1: round, clock and the last verdict are there, in seconds from now."""
    world = World(node("a", 2))
    world.create(
        [pod("busy", node_name="a", scheduler_name="other")],
        members("g", 2, mode="NonStrict", wait="60s"),
    )
    gang = described(world.advance(15.0), "ns/g")
    assert gang["reason"] == "Holding"
    assert gang["lastRound"] == {
        "number": gang["rounds"],
        "present": 1,
        "attempted": 1,
        "placed": 0,
        "outcome": "holding",
    }
    assert gang["clock"] == {"ranS": 15.0, "waitTimeS": 60.0, "leftS": 45.0}
    assert gang["queue"] == "parked"
    assert gang["state"]["cause"] == "a plan decided it"
    assert gang["state"]["entitlement"] == "none", "no reservations are made by default in tests"
    assert gang["notes"]


def test_the_list_has_our_gangs_and_waiting_pods_only() -> None:
    """One line per gang of ours and per plain pod that waits; a gang of another scheduler is not
    listed.
    """
    world = World(node("a", 1))
    world.create(
        members("g", 2),
        members("theirs", 2, scheduler_name="other"),
        [pod("lonely", gpus=9), pod("runs")],
    )
    lines = list_gangs(world.settle().state)
    assert [line["gang"] for line in lines] == ["ns/g", "pod:ns/lonely"]
    assert lines[0]["reason"] == "Unschedulable"
    assert lines[0]["counts"] == {"pending": 2}


def test_unknown_and_brand_new_gangs() -> None:
    """An unknown gang is None; one that came since the last turn is described without a verdict."""
    world = World(node("a"))
    assert describe_gang(world.state, "ns/none", now_s=0.0) is None
    world.create(members("g", 2))
    gang = described(world, "ns/g")
    assert (gang["reason"], gang["queue"], len(gang["members"]["pending"])) == ("", "", 2)


def test_reservations_are_listed_in_the_order_of_heads() -> None:
    """H15: kind, time, nodes and what each waits for; what nobody knows is null, as JSON has no
    infinity.
    """
    world = World(node("n", 8))
    timed = Reserved(
        group="ns/a",
        namespaces=frozenset({"ns"}),
        priority=0,
        since_s=60,
        run_time_s=math.inf,
        at_s=120.5,
        nodes=("n",),
        first=True,
        promised_s=180.0,
        waits_for=(Blocker("ns/old", "ns"),),
    )
    fence = structs.replace(
        timed,
        group="ns/b",
        at_s=math.inf,
        first=False,
        promised_s=math.inf,
        empty=1,
        run_time_s=60.0,
    )
    world.state.reports.reserved(
        Reservations(standing=(timed, fence)), now_s=world.now_s, wall_s=100.0
    )
    first, second = list_reservations(world.state)
    assert first == {
        "group": "ns/a",
        "kind": "timed",
        "first": True,
        "at": "1970-01-01T00:02:00Z",
        "promised": "1970-01-01T00:03:00Z",
        "waitingSince": "1970-01-01T00:01:00Z",
        "runTimeS": None,
        "nodes": ["n"],
        "empty": None,
        "waitsFor": ["ns/old"],
    }
    assert (second["kind"], second["at"], second["promised"], second["empty"]) == (
        "fence",
        None,
        None,
        1,
    )
    assert json.loads(json.dumps([first, second], allow_nan=False)) == [first, second]
