"""Reviews of gangs that exist: what they lack, who holds it, and what would help."""

from __future__ import annotations

import pytest

from gangsched.api import keys
from gangsched.model.inter_pod import HostPort, InterPodConstraints
from gangsched.model.objects import Shape
from gangsched.model.owners import JobOwner, StatefulSetOwner
from gangsched.model.protocol import Replaced
from gangsched.model.reservation import ReservationLimits
from gangsched.state.rule_set import Rules
from gangsched.visibility.ports import Json
from gangsched.visibility.reviews.holders import holders
from gangsched.visibility.reviews.request import read_review
from gangsched.visibility.statuses import RequestRefused
from tests.builders import amounts, members, node, pod
from tests.unit.visibility.reviews.test_review import Asked, body, pod_set
from tests.world import World


async def asked_about(world: World, name: str = "g") -> Json:
    """The status of a review of an existing gang."""
    return await Asked(world).review(body(existing=name))


def reserved() -> World:
    """A gang that lacks room until a declared end, and has a reservation."""
    rules = Rules(reservations=ReservationLimits(share=1.0))
    world = World(node("a", 8), node("b", 8), rules=rules)
    ends = ((keys.EXPECTED_RUNTIME, "3600s"),)
    created_s = world.wall_s()
    world.create(pod("x", gpus=8, run_time_metadata=ends, creation_s=created_s))
    world.settle()
    world.create(members("g", 2, gpus=8, run_time_metadata=ends, creation_s=created_s))
    world.advance(60)
    assert world.state.reservations.standing
    return world


async def test_a_gang_that_exists_is_no_rival_of_itself() -> None:
    """Its own reservation is its own: once there is room it would start, where a second gang like
    it would wait behind it.
    """
    world = reserved()
    status = await asked_about(world)
    assert not status["fits"]
    world.delete(*[each for each in world.pods.values() if each.name == "x"])
    freed = await asked_about(world)
    rival = await Asked(world).review(body(pod_set(2, 8), min=2))
    assert (freed["fits"], rival["fits"]) == (True, False)
    assert {each["podSet"] for each in freed["assignments"]} == {"g-0", "g-1"}


async def test_what_would_help_is_said_of_the_gang_itself() -> None:
    """Each suggestion is verified by a plan with the gang's own reservation."""
    status = await asked_about(reserved())
    assert "a minimum of 1 instead of 2 would start now" in status["suggestions"]


async def test_whose_number_a_smaller_minimum_is_compared_with_is_said() -> None:
    """That of the Job, which its owner would have to change."""
    world = World(node("a", 8))
    job = JobOwner(uid="Job-train", namespace="ns", name="train", minimum=3)
    world.say(Replaced(JobOwner, (job,)), Replaced(StatefulSetOwner, ()))
    asks = ((keys.OWNER_GANG, keys.OWNER),)
    for index in range(3):
        world.create(
            pod(
                f"train-{index}",
                gpus=4,
                owner="train",
                controller_kind="Job",
                controller_uid="Job-train",
                gang_metadata=asks,
            )
        )
    status = await asked_about(world.settle(), "Job.train")
    assert (
        "a minimum of 2 instead of 3 (Job ns/train makes 3) would start now"
        in (status["suggestions"])
    )


async def test_who_holds_what_it_lacks() -> None:
    """Gangs and pods of its namespace are named, others are counted."""
    world = World(node("a", 8), node("b", 8))
    world.create(pod("mine", gpus=3), members("ours", 2, gpus=2))
    world.create(pod("theirs", gpus=4, namespace="other"))
    world.settle()
    world.create(members("g", 2, gpus=4))
    world.settle()
    asked = Asked(world)
    wanted = await asked.reviewer.wanted("ns", read_review(body(existing="g")), is_master=True)
    about = asked.reviewer.hypothetical(wanted)
    tried = asked.reviewer.attempt(about.group)
    assert holders(asked.reviewer, tried, about) == {
        "resource": "nvidia.com/gpu",
        "own": [
            {"kind": "gang", "name": "ours", "amount": "4"},
            {"kind": "pod", "name": "mine", "amount": "3"},
        ],
        "ownCount": 2,
        "others": {"count": 1, "amount": "4"},
    }


async def test_who_lacks_no_resource_is_told_of_no_holder() -> None:
    """Of a port that is taken: that others use places for pods there is not why it waits."""
    on_port = Shape(
        requests=amounts(cpu_milli=100, pods=1),
        inter_pod=InterPodConstraints(ports=(HostPort("TCP", 80),)),
    )
    world = World(node("a", 8))
    world.create(pod("mine", of=on_port))
    world.settle()
    world.create(members("g", 1, of=on_port))
    world.settle()
    assert "free ports" in (await asked_about(world))["message"]
    asked = Asked(world)
    wanted = await asked.reviewer.wanted("ns", read_review(body(existing="g")), is_master=True)
    about = asked.reviewer.hypothetical(wanted)
    tried = asked.reviewer.attempt(about.group)
    assert holders(asked.reviewer, tried, about) is None


async def test_a_gang_that_is_not_there_or_does_not_wait_is_refused() -> None:
    """404 and 422, as for other objects."""
    world = World(node("a", 8))
    world.create(members("g", 1))
    world.settle()
    for name, code in (("unknown", 404), ("g", 422)):
        with pytest.raises(RequestRefused) as refused:
            await asked_about(world, name)
        assert refused.value.code == code


def test_nothing_else_is_said_of_an_existing_gang() -> None:
    """Pods or a minimum beside it would be another gang."""
    for wrong in (body(pod_set(1), existing="g"), body(existing="g", min=2)):
        with pytest.raises(RequestRefused, match="the spec has nothing else"):
            read_review(wrong)
