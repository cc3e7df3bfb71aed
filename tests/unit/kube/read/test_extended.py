"""Requests of the claim for a pod's extended resources, and when devices are read for them."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from gangsched.kube.read.decode import decode_pod
from gangsched.kube.read.extended import extended_resources
from gangsched.kube.read.informers import ClaimWatch
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.wire import Container, PodSpec, Resources, WirePod
from gangsched.model.devices import DeviceClass
from gangsched.model.objects import ClaimUse, ExtendedResource, Pod
from gangsched.model.protocol import Applied, Replaced
from tests.unit.kube.fakes import pod

X, CLASS = "example.com/x", "deviceclass.resource.kubernetes.io/c"


def container(name: str, *, always: Any = False, **requests: int) -> dict[str, Any]:
    """A container, or a sidecar; `x` is the resource, `y` a second one."""
    named = {
        {"x": X, "y": "example.com/y", "cls": CLASS}.get(key, key): str(n)
        for key, n in requests.items()
    }
    return {
        "name": name,
        "resources": {"requests": named},
        **({"restartPolicy": "Always"} if always else {}),
    }


def read(*containers: dict[str, Any], inits: tuple[dict[str, Any], ...] = (), **fields: Any) -> Pod:
    """The pod with these containers."""
    body = pod(**fields)
    body["spec"] |= {"containers": list(containers), "initContainers": list(inits)}
    found = decode_pod(msgspec.json.decode(json.dumps(body), type=WirePod), ShapeTable())
    assert found is not None
    return found


def test_each_container_requests_its_own() -> None:
    """The request is named after the container and the place of the resource among all that it
    requests, zeros too.
    """
    found = read(
        container("a", cpu=1, x=2), container("b", x=1, y=3, memory=0), container("c", cpu=1)
    ).shape.extended
    assert found == (
        ExtendedResource(
            X,
            (("container-0-request-1", 2), ("container-1-request-0", 1)),
            (("a", "container-0-request-1"), ("b", "container-1-request-0")),
        ),
        ExtendedResource(
            "example.com/y", (("container-1-request-1", 3),), (("b", "container-1-request-1"),)
        ),
    )


def test_init_containers_use_what_later_containers_have() -> None:
    """Those that end before others start share one request for what they need beyond those of later
    containers.
    """
    inits = (
        container("i0", x=5),
        container("side", always=True, x=1),
        container("i1", x=3),
        container("i2", x=1),
    )
    (found,) = read(container("main", x=2), inits=inits).shape.extended
    # i0 may use the sidecar's and main's 3, so it needs 2 more; i1 may use main's 2, so it needs 1
    # more, which i0 has.
    assert dict(found.requests) == {
        "container-0-request-0": 2,
        "container-1-request-0": 1,
        "container-4-request-0": 2,
    }
    assert found.users == (
        ("side", "container-1-request-0"),
        ("main", "container-4-request-0"),
        ("i0", "container-1-request-0"),
        ("i0", "container-4-request-0"),
        ("i0", "container-0-request-0"),
        ("i1", "container-4-request-0"),
        ("i1", "container-0-request-0"),
        ("i2", "container-4-request-0"),
    )


def test_which_resources_may_be_served() -> None:
    """Those of others than Kubernetes, and those named after a class."""
    names = ("cpu", "hugepages-2Mi", "kubernetes.io/y", "requests.example.com/y", CLASS, X)
    found = read(container("a", **dict.fromkeys(names, 1))).shape.extended
    assert [each.name for each in found] == [CLASS, X]
    assert read(container("a", x=0)).shape.extended == ()


def test_shapes_differ_by_the_names_of_such_containers() -> None:
    """Which the claim's users are; other pods share their shapes, whatever their containers are
    called.
    """
    table = ShapeTable()

    def of(name: str, **requests: int) -> object:
        body = pod()
        body["spec"] |= {"containers": [container(name, **requests)]}
        found = decode_pod(msgspec.json.decode(json.dumps(body), type=WirePod), table)
        assert found is not None
        kept.append(found)
        return found.shape

    kept: list[Pod] = []
    assert of("a", x=1) is of("a", x=1)
    assert of("a", x=1) is not of("b", x=1)
    assert of("a", cpu=1) is of("b", cpu=1)


def test_a_claim_that_was_made_is_in_the_status() -> None:
    """A bound pod uses the claim that its scheduler created."""
    made = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}}
    assert read(container("a", x=1), node="n", status=made).claims == (
        ClaimUse("c", ephemeral=True, device=True, extended=True),
    )


@pytest.mark.parametrize("extends", [True, False])
def test_when_devices_are_read(*, extends: bool) -> None:
    """Classes once a pod requests an extended resource, devices once a class serves one; order does
    not matter.
    """
    plain, some = read(container("a", cpu=1)), read(container("a", x=1))
    serving, other = DeviceClass("c", (), X), DeviceClass("d", (), "example.com/z")
    for first, second in (((some,), (serving,)), ((serving,), (some,))):
        watch = ClaimWatch(extends=extends)
        watch.take(Replaced(Pod, (plain,)))
        watch.take(Applied(other))
        assert not watch.is_named.is_set()
        watch.take(Applied(*first))
        assert watch.is_named.is_set() == (extends and first == (some,))
        assert not watch.is_claimed.is_set()
        watch.take(Applied(*second))
        assert watch.is_claimed.is_set() == extends
    watch = ClaimWatch(extends=extends)
    watch.take(Applied(msgspec.structs.replace(plain, claims=(ClaimUse("c", device=True),))))
    assert watch.is_named.is_set()
    assert watch.is_claimed.is_set()


def test_many_containers_are_read_in_linear_time() -> None:
    """I8: four times as many containers, each with a resource of its own, take about four times as
    long.
    """
    took_s = []
    for number in (500, 2_000):
        each = [
            Container(name=f"c{i}", resources=Resources(requests={f"example.com/r{i}": 1}))
            for i in range(number)
        ]
        spec = PodSpec(containers=each)
        tries = []
        for _ in range(5):
            began_s = time.process_time()
            assert len(extended_resources(spec)) == number
            tries.append(time.process_time() - began_s)
        took_s.append(min(tries))
    # Of quadratic time it would be sixteen times.
    assert took_s[1] < 10 * took_s[0], took_s
