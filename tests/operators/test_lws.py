"""The real LeaderWorkerSet with its webhooks: each group is a gang, by a PodGroup of Volcano or by
opt-in.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import ROOT
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of

from gangsched.api.dialects.volcano import VolcanoSpec
from tests.e2e import definitions
from tests.operators.losses import await_running, end
from tests.operators.members import (
    IN_THE_WAY,
    PODS,
    WITHIN_S,
    await_bound,
    await_none,
    await_refused,
    give_them_back,
    starts_whole,
    take_gpus,
)
from tests.operators.operator import Operator, example, install_chart, source
from tests.operators.webhooks import Webhooks, configuration_of

pytestmark = pytest.mark.e2e

JOBS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
CONFIGURATION = configuration_of("lws")
PROVIDER = "gangSchedulingManagement: {schedulerProvider: volcano}\n"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
STARTS = 20
LOSSES = int(os.environ.get("LOSSES", "6"))
"""Members that are killed."""


@pytest.fixture(scope="module")
def webhooks(plane: ControlPlane) -> Iterator[Webhooks]:
    """Installed as its chart says with gang provider Volcano, of which there is the definition
    alone.
    """
    api = Api.of(plane)
    definitions.install(api, definitions.VOLCANO)
    webhooks = Webhooks(plane, "lws/lws-webhook-service")
    chart = source("lws") / "charts" / "lws"
    install_chart(api, chart, webhooks, "lws", "gangSchedulingManagement.schedulerProvider=volcano")
    yield webhooks
    api.close()


@pytest.fixture
def manager(plane: ControlPlane, api: Api, webhooks: Webhooks) -> Iterator[None]:
    """Its manager, with the gang provider."""
    with managed(plane, webhooks, PROVIDER):
        webhooks.await_answer(api, JOBS, example("LeaderWorkerSet"))
        yield


def managed(plane: ControlPlane, webhooks: Webhooks, provider: str = "") -> Operator:
    """Its manager until the end of the block."""
    argv = [
        f"--config={webhooks.write_configuration(CONFIGURATION + provider)}",
        "--kubeconfig=@KUBECONFIG@",
    ]
    return Operator(plane, "lws", account="lws/lws-controller-manager", argv=argv)


def workers(annotations: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """The guide's LeaderWorkerSet, with fields of its spec and annotations of its own."""
    body = copy.deepcopy(example("LeaderWorkerSet"))
    body["spec"].update(spec)
    body["metadata"]["annotations"] = dict(annotations or {})
    return body


def delete(api: Api, pods: Following) -> None:
    """Delete it and all that it made."""
    api.call("DELETE", f"{JOBS}/serve", {"propagationPolicy": "Foreground"})
    await_none(pods)
    for path, what in ((JOBS, "the set"), (GROUPS, "its PodGroups")):
        with Following(api, path) as left:
            left.wait_for(lambda items: not items, within_s=WITHIN_S, what=f"the end of {what}")


def test_every_field_of_volcanos_pod_groups_is_known() -> None:
    """A2: a field that a later release adds is honoured, refused or told, not left out."""
    (version,) = re.findall(
        r"volcano\.sh/apis (v\S+)", (ROOT / "hack" / "tools" / "lws" / "go.mod").read_text()
    )
    module = source("lws").parents[1] / "volcano.sh" / f"apis@{version}"
    types = (module / "pkg" / "apis" / "scheduling" / "v1beta1" / "types.go").read_text()
    spec = types.split("type PodGroupSpec struct {", 1)[1].split("\n}", 1)[0]
    fields = set(re.findall(r'json:"(\w+)', spec))
    assert (
        {"minMember", "queue"}
        < fields
        <= {field.alias for field in VolcanoSpec.model_fields.values()}
    )


@pytest.mark.usefixtures("manager")
def test_twenty_of_twenty_groups_wait_whole_and_start_whole(api: Api, pods: Following) -> None:
    """The guide's manifest, unchanged: no member is bound before all three have room, and then all
    are.
    """
    for number in range(STARTS):
        starts_whole(api, pods, lambda: api.post(JOBS, workers()), prefix="serve-", lacks_gpus=2)
        (group,) = api.list(GROUPS).items
        assert group["spec"]["minMember"] == 3, number
        delete(api, pods)


def start_one_by_one(api: Api, pods: Following, body: Object) -> None:
    """Create a set of two groups of two: with room for one of them one starts whole, and nothing of
    the other.
    """
    take_gpus(api, pods, 1)
    api.post(JOBS, body)
    bound = await_bound(pods, "serve-", 2)
    assert len({name.split("-")[1] for name in bound}) == 1, bound
    await_refused(pods, 2)
    give_them_back(api)
    await_bound(pods, "serve-", 4)
    delete(api, pods)


@pytest.mark.usefixtures("manager")
def test_groups_of_one_set_are_gangs_of_their_own(api: Api, pods: Following) -> None:
    """With room for one of two groups one starts whole, and nothing of the other."""
    body = workers(replicas=2)
    body["spec"]["leaderWorkerTemplate"]["size"] = 2
    start_one_by_one(api, pods, body)


@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize(
    "body",
    [workers(startupPolicy="LeaderReady"), workers({EXCLUSIVE: "kubernetes.io/hostname"})],
    ids=["LeaderReady", "exclusive-topology"],
)
def test_twenty_of_twenty_leaders_start_with_room_for_their_workers(
    body: Object, daemon: Daemon, api: Api, pods: Following
) -> None:
    """B8: no leader is bound before all three members have room. Small pods that come before the
    workers, every other time while gangsched is killed and started again, do not take that room.
    """
    for number in range(STARTS):
        take_gpus(api, pods, 2)
        api.post(JOBS, body)
        await_refused(pods, 1)
        assert not nodes_of(pods.objects(), "serve-")
        give_them_back(api)
        pods.wait_for(
            lambda items: "serve-0" in nodes_of(items, "serve-"),
            within_s=WITHIN_S,
            what="the leader",
        )
        if number % 2:
            daemon.kill()
        for each in range(4):
            api.post(PODS, make.pod(f"small-{each}", gpus=1))
        if number % 2:
            daemon.start()
        await_bound(pods, "serve-", 3)
        await_bound(pods, "small-", 1)
        for each in range(4):
            api.delete(f"{PODS}/small-{each}")
        delete(api, pods)


# --- asked for by its owner, without a provider --------------------------------------------------

READY = "gangsched.dev/leader-first"
ON_SECOND = {"kubernetes.io/hostname": "gpu-2"}


@pytest.fixture
def alone(plane: ControlPlane, api: Api, webhooks: Webhooks) -> Iterator[None]:
    """Its manager without a gang provider."""
    with managed(plane, webhooks):
        webhooks.await_answer(api, JOBS, asking())
        yield
        assert not api.list(GROUPS).items


def asking(
    annotations: Mapping[str, str] | None = None,
    *,
    of_pods: Mapping[str, str] | None = None,
    size: int = 3,
    **spec: Any,
) -> Object:
    """A LeaderWorkerSet whose pods ask for the gang of their owner."""
    body = workers(annotations, **spec)
    template = body["spec"]["leaderWorkerTemplate"]
    template["size"] = size
    template["workerTemplate"]["metadata"] = {
        "labels": {"gangsched.dev/gang": "owner"},
        "annotations": dict(of_pods or {}),
    }
    return body


@pytest.mark.usefixtures("alone")
def test_a_group_that_opts_in_is_a_gang_without_a_provider(api: Api, pods: Following) -> None:
    """By its labels and its size alone; no PodGroup is made."""
    starts_whole(api, pods, lambda: api.post(JOBS, asking()), prefix="serve-", lacks_gpus=2)
    delete(api, pods)


@pytest.mark.usefixtures("alone")
def test_a_group_that_opts_in_waits_for_its_last_pod(api: Api, pods: Following) -> None:
    """O3: two of three wait although all have room, and start with the third."""
    quotas = "/api/v1/namespaces/default/resourcequotas"
    quota = {"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}}
    api.post(quotas, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    api.post(JOBS, asking())
    await_refused(pods, 2, "WaitingForMembers")
    assert nodes_of(pods.objects(), "serve-") == {}
    api.delete(f"{quotas}/two")
    await_bound(pods, "serve-", 3)
    delete(api, pods)


@pytest.mark.usefixtures("alone")
def test_groups_that_opt_in_are_gangs_of_their_own(api: Api, pods: Following) -> None:
    """O3: of two replicas one starts with room for one, and nothing of the other."""
    start_one_by_one(api, pods, asking(replicas=2, size=2))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "body",
    [
        asking(of_pods={READY: "true"}, size=2, startupPolicy="LeaderReady"),
        asking({EXCLUSIVE: "kubernetes.io/hostname"}, size=2),
    ],
    ids=["LeaderReady", "exclusive-topology"],
)
def test_a_leader_that_opts_in_starts_alone_with_room_for_its_workers(
    body: Object, api: Api, pods: Following
) -> None:
    """O5, B8: once a worker of another group tells what its workers request; nothing else does
    without a PodGroup.
    """
    api.post(JOBS, body)
    await_bound(pods, "serve-0", 2)
    if EXCLUSIVE in body["metadata"]["annotations"]:
        # A domain is for one group.
        make.create_all(api, [make.node("gpu-2", gpus=2)])
        api.post(PODS, make.pod(IN_THE_WAY, gpus=1, node_selector=ON_SECOND))
        await_bound(pods, IN_THE_WAY, 1)
    else:
        take_gpus(api, pods, 1)

    api.patch(f"{JOBS}/serve", {"spec": {"replicas": 2}})
    await_refused(pods, 1)
    assert nodes_of(pods.objects(), "serve-1") == {}
    give_them_back(api)
    await_bound(pods, "serve-1", 2)
    delete(api, pods)
    if EXCLUSIVE in body["metadata"]["annotations"]:
        api.delete("/api/v1/nodes/gpu-2")


@pytest.mark.usefixtures("alone")
def test_a_group_runs_again_after_each_pod_that_is_killed(api: Api, pods: Following) -> None:
    """L2: it is made anew, mostly as a whole: LeaderWorkerSet overlooks a pod that its StatefulSet
    has replaced meanwhile. `LOSSES=50` for the long form.
    """
    api.post(JOBS, asking())
    random = Random(0)
    gone: set[str] = set()
    for number in range(LOSSES):
        killed = random.choice(await_running(pods, 3, gone))
        gone.add(killed["metadata"]["uid"])
        try:
            if number % 2:
                end(api, killed, "Failed")
            else:
                api.delete(f"{PODS}/{killed['metadata']['name']}")
        except ApiError as error:
            # The rest of a group goes a moment after the pod that was killed.
            if error.status != 404:
                raise

    await_running(pods, 3, gone)
    delete(api, pods)
