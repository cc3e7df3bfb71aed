"""`devices: auto`: the rights are asked for again and again, and each change is reported once."""

from __future__ import annotations

import asyncio

import pytest

from gangsched.kube.http.faults import ApiFault, Unreachable
from gangsched.kube.read.device_rights import DeviceRights
from gangsched.kube.read.optional_rights import ASK_EVERY_S
from tests.unit.kube.fakes import Answer, FakeRequests, FakeTime, Sent

NOT_SERVED = ApiFault(404, "NotFound", "the server could not find the requested resource")


class Site:
    """An API server whose answers the test changes."""

    def __init__(self) -> None:
        self.denied: set[str] = set()
        self.slices: Answer = {"items": []}
        self.is_away = False

    def answer(self, sent: Sent) -> Answer:
        if self.is_away:
            return Unreachable("nobody answers")
        if sent.method == "GET":
            return self.slices
        resource = sent.body["spec"]["resourceAttributes"]["resource"]
        return {"status": {"allowed": resource not in self.denied}}


async def test_the_right_is_taken_away_and_given_back_while_it_runs() -> None:
    """Each change is reported once, with what is missing; an API server that is away changes
    nothing.
    """
    site, clock = Site(), FakeTime()
    said: list[str] = []
    rights = DeviceRights(FakeRequests(site.answer), clock.runtime(said.append), asks=True)
    assert not rights.granted.is_set()
    assert not rights.denied.is_set()
    running = asyncio.create_task(rights.run())
    await clock.advance(ASK_EVERY_S)
    assert (rights.granted.is_set(), rights.denied.is_set(), said) == (True, False, [])

    site.denied = {"resourceslices"}
    for _ in range(3):
        await clock.advance(ASK_EVERY_S)
    site.is_away = True
    await clock.advance(ASK_EVERY_S)
    assert (rights.granted.is_set(), rights.denied.is_set()) == (False, True)

    site.is_away, site.denied = False, set()
    await clock.advance(ASK_EVERY_S)
    assert (rights.granted.is_set(), rights.denied.is_set()) == (True, False)
    assert said == [
        (
            "No devices are allocated to resource claims. The scheduler may not list resourceslices"
            " in resource.k8s.io; watch resourceslices in resource.k8s.io: apply"
            " manifests/rbac-devices.yaml."
        ),
        "Devices are allocated to resource claims from now on.",
    ]
    running.cancel()


@pytest.mark.parametrize("asks", [True, False])
async def test_where_slices_are_not_served(*, asks: bool) -> None:
    """Then nothing is allocated, unless the administrator says `all`: then nobody is asked."""
    site, clock = Site(), FakeTime()
    site.slices = NOT_SERVED
    said: list[str] = []
    requests = FakeRequests(site.answer)
    rights = DeviceRights(requests, clock.runtime(said.append), asks=asks)
    running = asyncio.create_task(rights.run())
    await clock.advance(ASK_EVERY_S * 3)
    assert rights.denied.is_set() == asks
    assert bool(requests.sent) == asks
    assert (
        said
        == [
            "No devices are allocated to resource claims. The API server does not serve"
            " ResourceSlices."
        ]
        * asks
    )
    running.cancel()
