"""The real Kueue, with its webhooks: what it admits waits whole and starts whole, also after an
eviction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply, apply_yaml, load_yaml
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.operators.jobset import JOBS as JOBSETS
from tests.operators.kueue import JOBS, QUEUE_NAME, QUEUES, kueue_installed
from tests.operators.members import (
    GROUPS,
    PODS,
    WITHIN_S,
    await_bound,
    await_none,
    await_refused,
    await_told,
    give_them_back,
    starts_whole,
    take_gpus,
)
from tests.operators.operator import Operator, example

pytestmark = pytest.mark.e2e

QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/gpus"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"


def of_the_page(kind: str) -> Object:
    """The object of a kind that the guide shows."""
    return example(kind, file=QUEUES)


@pytest.fixture(scope="module", autouse=True)
def operator(plane: ControlPlane) -> Iterator[Operator]:
    """Kueue, installed as its manifests say, with plain pods among what it manages, and the guide's
    queue; gangsched may read Jobs and JobSets.
    """
    api = Api.of(plane)
    for name in ("rbac-owners.yaml", "rbac-owners-jobset.yaml"):
        apply_yaml(api, ROOT / "manifests" / name)
    with kueue_installed(plane) as started:
        for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue"):
            apply(api, of_the_page(kind))
        yield started
    api.close()


@pytest.fixture(autouse=True)
def held(api: Api, pods: Following) -> Iterator[None]:
    """Nothing is admitted at first; nothing but the queue is left behind."""
    stop(api, "Hold")
    yield
    for pod in pods.objects().values():
        api.delete(f"{PODS}/{pod['metadata']['name']}")
    for path in (WORKLOADS, GROUPS):
        for item in api.list(path).items:
            api.delete(f"{path}/{item['metadata']['name']}")


def stop(api: Api, policy: str) -> None:
    """Set whether the queue admits (`None`), admits nothing more (`Hold`), or evicts as well
    (`HoldAndDrain`).
    """
    api.patch(QUEUE, {"spec": {"stopPolicy": policy}})


def await_workload(api: Api, condition: str, status: str = "True") -> None:
    """Wait until the one Workload has a condition."""

    def there(items: Mapping[str, Object]) -> bool:
        conditions = [
            one for item in items.values() for one in item.get("status", {}).get("conditions", ())
        ]
        return any((one["type"], one["status"]) == (condition, status) for one in conditions)

    with Following(api, WORKLOADS) as workloads:
        workloads.wait_for(there, within_s=WITHIN_S, what=f"{condition}={status} of the Workload")


def test_a_job_has_no_pods_until_it_is_admitted_and_starts_whole(api: Api, pods: Following) -> None:
    """The webhook suspends it; admitted, its pods wait for room as a gang."""
    api.post(GROUPS, of_the_page("PodGroup"))
    assert api.post(JOBS, of_the_page("Job"))["spec"]["suspend"]
    await_workload(api, "QuotaReserved", "False")
    assert not pods.objects()
    starts_whole(api, pods, lambda: stop(api, "None"), prefix="bert-", number=2)


def test_a_job_that_is_evicted_goes_whole_and_comes_whole(api: Api, pods: Following) -> None:
    """Evicted, it is suspended, so all its pods go; admitted again, they are a whole gang again."""
    stop(api, "None")
    api.post(GROUPS, of_the_page("PodGroup"))
    api.post(JOBS, of_the_page("Job"))
    await_bound(pods, "bert-", 2)
    stop(api, "HoldAndDrain")
    await_none(pods)
    assert api.get(f"{JOBS}/bert")["spec"]["suspend"]
    starts_whole(api, pods, lambda: stop(api, "None"), prefix="bert-", number=2)


def test_a_jobset_comes_whole(api: Api, pods: Following) -> None:
    """The guide's JobSet in a queue: its replicated jobs are suspended until all are admitted."""
    body = example("JobSet")
    body["metadata"]["labels"] = {QUEUE_NAME: "research"}
    api.post(GROUPS, example("PodGroup", name="training"))
    assert api.post(JOBSETS, body)["spec"]["suspend"]
    await_workload(api, "QuotaReserved", "False")
    assert not pods.objects()
    starts_whole(api, pods, lambda: stop(api, "None"), prefix="training-")
    api.delete(f"{JOBSETS}/training")


def test_plain_pods_are_gated_until_the_group_is_admitted_and_start_whole(
    api: Api, pods: Following
) -> None:
    """`examples/kueue-pod-group.yaml` with a queue: nobody tells its pods anything while Kueue's
    gates are there.
    """
    for body in load_yaml(ROOT / "examples" / "kueue-pod-group.yaml"):
        body["metadata"]["labels"][QUEUE_NAME] = "research"
        body["spec"]["containers"][0]["resources"]["limits"] = {make.GPU: "2"}
        stored = api.post(PODS, body)
        assert {"name": "kueue.x-k8s.io/admission"} in stored["spec"]["schedulingGates"]
    await_workload(api, "QuotaReserved", "False")
    assert {refusal(pod)[0] for pod in pods.objects().values()} <= {"SchedulingGated"}
    starts_whole(api, pods, lambda: stop(api, "None"), prefix="kueue-", number=2)


def test_a_gang_larger_than_what_is_admitted_in_part_never_starts(
    api: Api, pods: Following
) -> None:
    """Kueue admits as many of a job with a minimum as its quota holds; the gang's minimum must be
    that one.
    """
    stop(api, "None")
    api.post(GROUPS, make.pod_group("bert", min_member=3))
    body = of_the_page("Job")
    body["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    body["spec"] |= {"parallelism": 3, "completions": 3}
    api.post(JOBS, body)
    await_refused(pods, 2, "WaitingForMembers")
    await_told(
        api, "bert", "waiting for members of gang default/bert: 2 of 3 are ready; 1 is missing"
    )
    assert api.get(f"{JOBS}/bert")["spec"]["parallelism"] == 2
    api.patch(f"{GROUPS}/bert", {"spec": {"minMember": 1}})
    await_bound(pods, "bert-", 2)


def admit_without_room(api: Api, pods: Following) -> list[Object]:
    """Have the page's job admitted while a GPU is taken that it needs; its pods, once they wait for
    room.
    """
    take_gpus(api, pods)
    stop(api, "None")
    api.post(GROUPS, of_the_page("PodGroup"))
    api.post(JOBS, of_the_page("Job"))
    return await_refused(pods, 2)


def starts_with_room(api: Api, pods: Following) -> None:
    """None of the job is bound until the GPU is given back; then all of it is."""
    assert not nodes_of(pods.objects(), "bert-")
    give_them_back(api)
    await_bound(pods, "bert-", 2)


def test_quota_for_more_than_the_nodes_hold_lets_a_gang_in_that_waits(
    api: Api, pods: Following
) -> None:
    """Kueue counts quota, not room: the job is admitted, and its gang says what it lacks."""
    admit_without_room(api, pods)
    await_workload(api, "Admitted")
    starts_with_room(api, pods)


def test_a_gang_that_waits_too_long_is_taken_back_and_comes_again(
    api: Api, pods: Following
) -> None:
    """`waitForPodsReady` evicts a job that waits for room, whole, and admits it again; it is the
    same gang.
    """
    first = {pod["metadata"]["uid"] for pod in admit_without_room(api, pods)}
    await_workload(api, "Evicted")
    pods.wait_for(
        lambda items: not first & set(items),
        within_s=WITHIN_S,
        what="the end of the first two pods",
    )
    await_refused(pods, 2)
    starts_with_room(api, pods)


def asking_job(**spec: object) -> Object:
    """The page's job, whose pods ask for the gang of their owner."""
    body = of_the_page("Job")
    body["spec"]["template"]["metadata"]["labels"] = {"gangsched.dev/gang": "owner"}
    body["spec"] |= spec
    return body


def test_a_job_that_asks_starts_whole_without_a_pod_group(api: Api, pods: Following) -> None:
    """O3: suspended, it starts nothing; admitted it starts whole, and again after an eviction."""
    assert api.post(JOBS, asking_job())["spec"]["suspend"]
    await_workload(api, "QuotaReserved", "False")
    assert not pods.objects()
    starts_whole(api, pods, lambda: stop(api, "None"), prefix="bert-", number=2)

    stop(api, "HoldAndDrain")
    await_none(pods)
    starts_whole(api, pods, lambda: stop(api, "None"), prefix="bert-", number=2)
    assert not api.list(GROUPS).items


def test_a_job_that_asks_and_is_admitted_in_part_starts(api: Api, pods: Following) -> None:
    """O4: Kueue makes it smaller, and the minimum follows."""
    stop(api, "None")
    body = asking_job(parallelism=3, completions=3)
    body["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    api.post(JOBS, body)
    await_bound(pods, "bert-", 2)
    assert api.get(f"{JOBS}/bert")["spec"]["parallelism"] == 2


def test_a_jobset_that_asks_starts_whole_without_a_pod_group(api: Api, pods: Following) -> None:
    """O3: its Jobs are resumed one after the other, and start together."""
    body = example("JobSet")
    body["metadata"]["labels"] = {QUEUE_NAME: "research"}
    for part in body["spec"]["replicatedJobs"]:
        template = part["template"]["spec"]["template"]
        template["metadata"]["labels"] = {"gangsched.dev/gang": "owner"}
    assert api.post(JOBSETS, body)["spec"]["suspend"]
    await_workload(api, "QuotaReserved", "False")
    assert not pods.objects()
    starts_whole(api, pods, lambda: stop(api, "None"), prefix="training-")
    assert not api.list(GROUPS).items
    api.delete(f"{JOBSETS}/training")
