"""Admission policies that refuse what gangsched writes in one namespace: only that namespace waits,
is told why in one sentence, and starts once the policy is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import refusal

from tests.e2e import test_devices as devices
from tests.e2e import test_volumes as volumes
from tests.e2e.conftest import PODS
from tests.policies import refused, rule

pytestmark = pytest.mark.e2e

PLANE = {"kcm": True, "kwok": True}
DENIED, FREE = "denied", "default"
WORDS = "nobody may do this before Monday"
"""What the policy says."""
AT_ONCE_S = 20.0
GOES_ON_WITHIN_S = 45.0
"""A refused write is sent again within 10 s."""
MEMBERS = 2


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    """A node with GPUs and devices, a class of volumes, and the namespace that is denied."""
    api = Api.of(plane)
    selector = {"cel": {"expression": f'device.driver == "{devices.DRIVER}"'}}
    has_gpus = devices.resource("DeviceClass", "gpu", {"selectors": [selector]})
    make.create_all(api, [make.namespace(DENIED), volumes.storage_class("late"), has_gpus])
    devices.node(
        api,
        "n0",
        *(devices.gpu(f"g{number}") for number in range(2 * MEMBERS)),
        gpus=8,
        labels={volumes.ZONE: "z"},
    )
    yield api
    api.close()


def plain() -> list[Object]:
    """A gang that claims nothing."""
    return make.gang("plain", members=MEMBERS, gpus=1)


def claiming_devices() -> list[Object]:
    """A gang whose members claim a device each."""
    template = devices.resource("ResourceClaimTemplate", "one", {"spec": devices.asks()})
    uses = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    return [template, *make.gang("devices", members=MEMBERS, spec=uses)]


def claiming_volumes() -> list[Object]:
    """A gang whose members have a volume each, which waits for them."""
    claims = [volumes.claim(f"v{number}") for number in range(MEMBERS)]
    names = [claim["metadata"]["name"] for claim in claims]
    return [*claims, *volumes.gang("volumes", *names)]


def placed(bodies: Sequence[Object], namespace: str) -> list[Object]:
    """The same objects in a namespace."""
    return [body | {"metadata": {**body["metadata"], "namespace": namespace}} for body in bodies]


def await_members(
    pods: Following, namespace: str, name: str, holds: Callable[[Object], object], what: str
) -> list[Object]:
    """Until it holds for all members of a gang; these."""

    def found(items: Mapping[str, Object]) -> list[Object] | None:
        members = [
            pod
            for pod in items.values()
            if pod["metadata"]["namespace"] == namespace
            and pod["metadata"]["name"].startswith(f"{name}-")
        ]
        hold = [pod for pod in members if holds(pod)]
        return hold if len(hold) == MEMBERS else None

    within_s = GOES_ON_WITHIN_S if namespace == DENIED else AT_ONCE_S
    try:
        return pods.wait_for(found, within_s=within_s, what=f"{namespace}/{name}: {what}")
    except TimeoutError as error:
        told = [(pod["metadata"]["name"], refusal(pod)) for pod in pods.objects().values()]
        raise AssertionError(f"{error}: {told}") from error


def is_bound(pod: Object) -> bool:
    """Whether it has a node."""
    return bool(pod["spec"].get("nodeName"))


def is_told(pod: Object) -> bool:
    """Whether it says in one sentence what the policy says."""
    reason, text = refusal(pod)
    is_one = f"binding pod {DENIED}/" in text and text.endswith(WORDS) and ". " not in text
    return reason == "BackOff" and is_one


BINDS = rule("pods/binding", "CREATE")
DEVICES = rule("resourceclaims/status", "UPDATE", "resource.k8s.io")
VOLUMES = rule("persistentvolumeclaims", "UPDATE")


@pytest.mark.parametrize(
    ("refuses", "objects"),
    [(BINDS, plain), (DEVICES, claiming_devices), (VOLUMES, claiming_volumes)],
    ids=["binds", "devices", "volumes"],
)
def test_only_the_namespace_whose_writes_are_refused_waits(
    plane: ControlPlane, api: Api, refuses: Object, objects: Callable[[], list[Object]]
) -> None:
    """B3, B7: it is told in the policy's words, and starts once they are gone."""
    name = objects()[-1]["metadata"]["name"].rpartition("-")[0]
    with (
        Daemon(plane, extra_args=devices.ALL),
        Following(api, PODS) as pods,
        volumes.provisioning(api),
    ):
        with refused(api, DENIED, [refuses], WORDS):
            make.create_all(api, placed(objects(), DENIED))
            make.create_all(api, placed(objects(), FREE))
            await_members(pods, FREE, name, is_bound, "bound")
            told = await_members(pods, DENIED, name, is_told, "told")
            assert not any(map(is_bound, told))

        await_members(pods, DENIED, name, is_bound, "bound")


def test_words_that_are_refused_come_once_they_may(plane: ControlPlane, api: Api) -> None:
    """E1: nobody else's words wait for them, and what has room starts without a word."""
    words = [
        rule("pods/status", "UPDATE"),
        rule("podgroups/status", "UPDATE", "scheduling.x-k8s.io"),
    ]
    large = make.gang("large", members=MEMBERS, gpus=8)

    def knows_why(pod: Object) -> bool:
        return refusal(pod)[0] == "Unschedulable"

    with Daemon(plane), Following(api, PODS) as pods:
        with refused(api, DENIED, words, WORDS):
            make.create_all(api, placed(large, DENIED))
            make.create_all(api, placed(large, FREE))
            await_members(pods, FREE, "large", knows_why, "told")

            make.create_all(api, placed(make.gang("small", members=MEMBERS), DENIED))
            await_members(pods, DENIED, "small", is_bound, "bound")
            told = await_members(pods, DENIED, "large", lambda _: True, "there")
            assert [refusal(pod) for pod in told] == [("", "")] * MEMBERS

        await_members(pods, DENIED, "large", knows_why, "told")
