"""Preemption's writes on a real API server, under the rights of the daemon's ServiceAccount."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_yaml
from control_plane.daemon import ACCOUNT, NAMESPACE, Daemon
from control_plane.following import Following

from gangsched.kube.http.client import connect
from gangsched.kube.ports import Runtime
from gangsched.kube.write.preemption import PreemptionWriter
from gangsched.model.disruption import VICTIM_MESSAGE
from gangsched.model.protocol import (
    CancelPreemption,
    Evict,
    Evicted,
    EvictionDelayed,
    EvictionResult,
    Message,
    NominatedMember,
    PodRef,
    PreemptionPrepared,
    PreparePreemption,
)
from tests.e2e.kube_parts import ROOT

pytestmark = pytest.mark.e2e

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
MANIFEST = ROOT / "manifests" / "rbac-preemption.yaml"
LAST_RESORT = "gangsched-preemption-last-resort"
WITHIN_S = 20.0
OURS = ("True", "PreemptionByScheduler", VICTIM_MESSAGE)


@pytest.fixture
def clean(api: Api) -> Iterator[Api]:
    """An administrator's client; pods that take time to stop, and budgets, are gone afterwards."""
    yield api
    for path in (BUDGETS, PODS):
        for item in api.list(path).items:
            query = "?gracePeriodSeconds=0" if path == PODS else ""
            api.delete(f"{path}/{item['metadata']['name']}{query}")


class Writing:
    """A writer at work, and what it told."""

    def __init__(self, writer: PreemptionWriter, told: list[Message], warnings: list[str]) -> None:
        self.writer, self.told, self.warnings = writer, told, warnings

    async def answer(self, order: Any, count: int = 1) -> list[Message]:
        """Order it; the next answers."""
        before = len(self.told)
        self.writer.order(order)
        await self.more(before + count)
        return self.told[before:]

    async def more(self, count: int) -> None:
        """Wait until so many answers came."""
        async with asyncio.timeout(WITHIN_S):
            while len(self.told) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


@asynccontextmanager
async def writing(plane: ControlPlane, folder: Path) -> AsyncIterator[Writing]:
    """A writer with the rights that the manifests give to the daemon."""
    token = plane.service_account_token(NAMESPACE, ACCOUNT)
    told: list[Message] = []
    warnings: list[str] = []
    async with await connect(plane.write_kubeconfig(folder / "kubeconfig", token=token)) as client:
        writer = PreemptionWriter(client, told.append, runtime=Runtime(warn=warnings.append))
        task = asyncio.create_task(writer.run())
        yield Writing(writer, told, warnings)
        task.cancel()
        await asyncio.wait({task})


def create(api: Api, name: str, *, runs: bool = True, **spec: Any) -> Object:
    """A bound pod that takes 30 s to stop, Running and Ready unless it is told not to be; it is of
    the app `a`.
    """
    spec = {"nodeName": "n", "terminationGracePeriodSeconds": 30, **spec}
    created = api.post(PODS, make.pod(name, labels={"app": "a"}, spec=spec))
    if runs:
        ready = [{"type": "Ready", "status": "True"}]
        api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": ready}})
    return created


def budget(api: Api, name: str, allowed: int) -> None:
    """A PodDisruptionBudget of the app `a`, as a controller would have written its status."""
    selector = {"matchLabels": {"app": "a"}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    api.post(BUDGETS, {**body, "spec": {"minAvailable": 3, "selector": selector}})
    allow(api, name, allowed)


def allow(api: Api, name: str, allowed: int) -> None:
    """Say how many may be evicted now."""
    status = {
        "observedGeneration": 1,
        "currentHealthy": 3 + allowed,
        "desiredHealthy": 3,
        "expectedPods": 3 + allowed,
    }
    api.patch(f"{BUDGETS}/{name}/status", {"status": {**status, "disruptionsAllowed": allowed}})


def evict(pod: Object, *, uid: str = "", within_s: float = 60.0, delete: bool = False) -> Evict:
    """The order to evict it."""
    meta = pod["metadata"]
    deadline_s = asyncio.get_running_loop().time() + within_s
    return Evict("1", uid or meta["uid"], meta["namespace"], meta["name"], deadline_s, delete)


def condition(pod: Object, kind: str = "DisruptionTarget") -> tuple[str, str, str]:
    """Status, reason and message of one of its conditions."""
    conditions = pod["status"].get("conditions", ())
    found: Object = next((each for each in conditions if each["type"] == kind), {})
    return (found.get("status", ""), found.get("reason", ""), found.get("message", ""))


async def test_members_are_nominated_and_victims_marked(
    plane: ControlPlane, clean: Api, tmp_path: Path
) -> None:
    """V13: nominatedNodeName and DisruptionTarget are stored, other conditions stay, and Cancel
    clears the node.
    """
    victim = create(clean, "victim")
    meta = clean.post(PODS, make.pod("member"))["metadata"]
    member = NominatedMember(meta["uid"], "default", "member", "n")
    async with writing(plane, tmp_path) as at:
        refs = (PodRef(victim["metadata"]["uid"], "default", "victim"),)
        assert await at.answer(PreparePreemption("1", (member,), refs)) == [PreemptionPrepared("1")]
        assert clean.get(f"{PODS}/member")["status"]["nominatedNodeName"] == "n"
        marked = clean.get(f"{PODS}/victim")
        assert condition(marked) == OURS
        assert condition(marked, "Ready")[0] == "True"
        at.writer.order(CancelPreemption("1", (member,)))
        assert await at.answer(PreparePreemption("2", (member,), ())) == [PreemptionPrepared("2")]
        at.writer.order(CancelPreemption("2", (member,)))
        async with asyncio.timeout(WITHIN_S):
            while "nominatedNodeName" in clean.get(f"{PODS}/member")["status"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        other = NominatedMember("another-uid", "default", "member", "n")
        (failed,) = await at.answer(PreparePreemption("3", (other,), refs))
        assert failed == PreemptionPrepared("3", "pod default/member is gone")


async def test_answers_of_the_eviction_api(plane: ControlPlane, clean: Api, tmp_path: Path) -> None:
    """V14: 201, 201 again while it ends, 409 for another uid, 404; our condition is there in the
    end (V13, 5).
    """
    pod = create(clean, "a")
    uid = pod["metadata"]["uid"]
    async with writing(plane, tmp_path) as at:
        (wrong,) = await at.answer(evict(pod, uid="another-uid"))
        assert isinstance(wrong, Evicted)
        assert wrong.result is EvictionResult.GONE
        assert "deletionTimestamp" not in clean.get(f"{PODS}/a")["metadata"]
        assert await at.answer(evict(pod)) == [Evicted("1", uid, EvictionResult.DONE)]
        assert clean.get(f"{PODS}/a")["metadata"]["deletionGracePeriodSeconds"] == 30
        assert condition(clean.get(f"{PODS}/a"))[1] == "EvictionByEvictionAPI"
        async with asyncio.timeout(WITHIN_S):
            while condition(clean.get(f"{PODS}/a")) != OURS:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await at.answer(evict(pod)) == [Evicted("1", uid, EvictionResult.DONE)]
        clean.delete(f"{PODS}/a?gracePeriodSeconds=0")
        (gone,) = await at.answer(evict(pod))
        assert isinstance(gone, Evicted)
        assert gone.result is EvictionResult.GONE
        assert at.warnings == []


async def test_a_pod_without_grace_period_is_gone_at_once(
    plane: ControlPlane, clean: Api, tmp_path: Path
) -> None:
    """V13 (5): there is nothing left to write the condition on, and that is no fault."""
    pod = create(clean, "a", terminationGracePeriodSeconds=0)
    async with writing(plane, tmp_path) as at:
        assert await at.answer(evict(pod)) == [
            Evicted("1", pod["metadata"]["uid"], EvictionResult.DONE)
        ]
    assert clean.list(PODS).items == []


async def test_a_budget_delays_an_eviction(plane: ControlPlane, clean: Api, tmp_path: Path) -> None:
    """V7, V14: 429 names the budget and is tried again until it is allowed; a Pending pod is not
    asked about.
    """
    pod, starting = create(clean, "a"), create(clean, "starting", runs=False)
    budget(clean, "w", 0)
    async with writing(plane, tmp_path) as at:
        (delayed,) = await at.answer(evict(pod))
        needs = "The disruption budget w needs 3 healthy pods and has 3 currently"
        assert delayed == EvictionDelayed("1", pod["metadata"]["uid"], needs)
        assert await at.answer(evict(starting)) == [
            Evicted("1", starting["metadata"]["uid"], EvictionResult.DONE)
        ]
        allow(clean, "w", 1)
        await at.more(3)
        assert at.told[-1] == Evicted("1", pod["metadata"]["uid"], EvictionResult.DONE)
    assert clean.get(f"{BUDGETS}/w")["status"]["disruptionsAllowed"] == 0


async def test_a_pod_under_two_budgets_is_never_evicted(
    plane: ControlPlane, clean: Api, tmp_path: Path
) -> None:
    """V7: the Eviction API answers 500, whatever the budgets allow."""
    pod = create(clean, "a")
    budget(clean, "v", 5)
    budget(clean, "w", 5)
    async with writing(plane, tmp_path) as at:
        delayed, ended = await at.answer(evict(pod, within_s=1.5), 2)
        assert isinstance(delayed, EvictionDelayed)
        assert "more than one PodDisruptionBudget" in delayed.message
        assert isinstance(ended, Evicted)
        assert ended.result is EvictionResult.BLOCKED
    assert "deletionTimestamp" not in clean.get(f"{PODS}/a")["metadata"]


async def test_the_last_resort_needs_a_right_of_its_own(
    plane: ControlPlane, clean: Api, tmp_path: Path
) -> None:
    """V7, V26: nobody is deleted under the rights of the manifests; with the third role no budget
    prevents it.
    """
    pod = create(clean, "a")
    budget(clean, "w", 0)
    async with writing(plane, tmp_path) as at:
        (answer,) = await at.answer(evict(pod, delete=True))
        assert isinstance(answer, Evicted)
        assert answer.result is EvictionResult.FORBIDDEN
        assert answer.message == "gangsched may not delete pods"  # names no pod (V22)
        (warning,) = at.warnings
        assert "off until a restart" in warning
        assert 'cannot delete resource "pods"' in warning
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": LAST_RESORT}
    clean.post(
        BINDINGS, {"metadata": {"name": LAST_RESORT}, "roleRef": role, "subjects": [subject]}
    )
    try:
        await granted(clean, "delete")
        async with writing(plane, tmp_path) as at:
            victim = PodRef(pod["metadata"]["uid"], "default", "a")
            assert await at.answer(PreparePreemption("1", (), (victim,))) == [
                PreemptionPrepared("1")
            ]
            (answer,) = await at.answer(evict(pod, delete=True))
            assert answer == Evicted("1", pod["metadata"]["uid"], EvictionResult.DONE)
        assert "deletionTimestamp" in clean.get(f"{PODS}/a")["metadata"]
    finally:
        clean.delete(f"{BINDINGS}/{LAST_RESORT}")


def allowed(api: Api, verb: str) -> bool:
    """Whether the daemon's account may delete pods, or create their evictions."""
    wanted = {
        "verb": verb,
        "resource": "pods",
        "subresource": "eviction" if verb == "create" else "",
    }
    review = {
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}",
            "resourceAttributes": wanted,
        }
    }
    return bool(
        api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"].get(
            "allowed"
        )
    )


async def granted(api: Api, verb: str, *, yes: bool = True) -> None:
    """Wait until the daemon's account has that right, or has it no more: the authorizer learns of
    it a moment later.
    """
    async with asyncio.timeout(WITHIN_S):
        while allowed(api, verb) is not yes:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_without_the_role_nobody_is_evicted(
    plane: ControlPlane, clean: Api, tmp_path: Path
) -> None:
    """V14, V26: the writer is forbidden and says so once; a daemon that starts so says it and
    schedules as ever.
    """
    pod = create(clean, "a")
    clean.delete(f"{BINDINGS}/gangsched-preemption")
    try:
        await granted(clean, "create", yes=False)
        async with writing(plane, tmp_path) as at:
            for _ in range(2):
                (answer,) = await at.answer(evict(pod))
                assert isinstance(answer, Evicted)
                assert answer.result is EvictionResult.FORBIDDEN
            assert len(at.warnings) == 1
        await asyncio.to_thread(schedule_without_preemption, plane, clean)
    finally:
        apply_yaml(clean, MANIFEST)
        await granted(clean, "create")
    assert "deletionTimestamp" not in clean.get(f"{PODS}/a")["metadata"]


def schedule_without_preemption(plane: ControlPlane, api: Api) -> None:
    """A gang is bound, and the log names each missing right once."""
    api.post("/api/v1/nodes", make.node("n", gpus=8))
    with Daemon(plane) as daemon, Following(api, "/api/v1/pods") as pods:
        make.create_all(api, make.gang("g", members=2, gpus=1))
        pods.wait_for(
            lambda items: sum("nodeName" in each["spec"] for each in items.values()) == 3,
            within_s=WITHIN_S,
            what="the gang to be bound",
        )
        said = [
            line["event"]
            for line in daemon.log_lines()
            if "Preemption is off" in line.get("event", "")
        ]
    assert said == [
        "Preemption is off. The scheduler may not create pods/eviction; list poddisruptionbudgets"
        " in policy; watch poddisruptionbudgets in policy: apply manifests/rbac-preemption.yaml."
    ]


def test_the_daemon_may_evict_pods_and_not_delete_them(api: Api) -> None:
    """V26: that is what the manifests grant."""
    assert allowed(api, "create")
    assert not allowed(api, "delete")
