"""Kueue's own topology scheduling and JobSet's exclusive placement: twenty of each start whole,
each job in one rack.

Both are the real controllers with their webhooks: JobSet's write the affinity of a job's first pod
and the node selectors of the others, Kueue's suspend, and its controllers write the host into each
pod. The API server calls them on loopback by the Service that their manifests name (`webhooks.py`);
the manifests are those of the guides, with the annotations that ask for topology, and this many of
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply
from control_plane.following import Following

from tests.operators.jobset import JOBS as JOBSETS
from tests.operators.kueue import JOBS, QUEUE_NAME, QUEUES, kueue_installed
from tests.operators.members import GROUP_LABEL, GROUPS
from tests.operators.operator import example

pytestmark = pytest.mark.e2e

RACK, JOB_KEY = "topology.kubernetes.io/rack", "jobset.sigs.k8s.io/job-key"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
NUMBER, RACKS, GPUS = 20, 40, 4
"""Workloads of each kind; racks of two nodes, and the GPUs of one: a JobSet of two jobs takes two
racks.
"""
ALL_WITHIN_S = 240.0
API = "kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module", autouse=True)
def operators(plane: ControlPlane) -> Iterator[None]:
    """Racks, both operators, and a queue whose flavour has the racks and their hosts as its
    topology.
    """
    api = Api.of(plane)
    names = [(f"r{rack:02}", f"r{rack:02}-{n}") for rack in range(RACKS) for n in range(2)]
    make.create_all(
        api,
        [make.node(name, gpus=GPUS, labels={RACK: rack, "pool": "racks"}) for rack, name in names],
    )
    with kueue_installed(plane, ready_within="5m"):
        levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
        apply(
            api,
            {
                "apiVersion": API,
                "kind": "Topology",
                "metadata": {"name": "racks"},
                "spec": {"levels": levels},
            },
        )
        flavour, queue = (
            example("ResourceFlavor", file=QUEUES),
            example("ClusterQueue", file=QUEUES),
        )
        apply(api, {**flavour, "spec": {"nodeLabels": {"pool": "racks"}, "topologyName": "racks"}})
        for resource in queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
            if resource["name"] == make.GPU:
                resource["nominalQuota"] = 2 * NUMBER * GPUS
        apply(api, queue)
        apply(api, example("LocalQueue", file=QUEUES))
        yield
    api.close()


@pytest.fixture(autouse=True)
def groups(api: Api, pods: Following) -> Iterator[None]:
    """No PodGroup or JobSet is left behind when `pods` waits for the end of them."""
    yield
    for path in (JOBSETS, GROUPS):
        for each in api.list(path).items:
            api.call(
                "DELETE", f"{path}/{each['metadata']['name']}", {"propagationPolicy": "Background"}
            )


def racks_by(pods: Following, number: int, job_of: Any) -> dict[str, list[str]]:
    """By job the racks of its pods, one entry a pod, once so many pods are bound. Raises
    TimeoutError.
    """

    def bound(items: Mapping[str, Object]) -> list[Object] | None:
        found = [pod for pod in items.values() if pod["spec"].get("nodeName")]
        return found if len(found) == number else None

    found: dict[str, list[str]] = {}
    for pod in pods.wait_for(bound, within_s=ALL_WITHIN_S, what=f"{number} pods to be bound"):
        found.setdefault(job_of(pod), []).append(pod["spec"]["nodeName"].rpartition("-")[0])
    return found


def test_twenty_exclusive_jobsets_start_whole_in_a_rack_for_each_job(
    api: Api, pods: Following
) -> None:
    """JobSet creates the first pod of each job, which is a gang; when it has a node the others
    follow to its rack.
    """
    for number in range(NUMBER):
        body = example("JobSet")
        name = body["metadata"]["name"] = f"training-{number:02}"
        body["metadata"]["annotations"] = {EXCLUSIVE: RACK}
        (worker,) = [job for job in body["spec"]["replicatedJobs"] if job["name"] == "worker"]
        worker["replicas"], template = 2, worker["template"]["spec"]["template"]
        template["metadata"]["labels"][GROUP_LABEL] = name
        template["spec"]["containers"][0]["resources"]["limits"] = {make.GPU: GPUS}
        body["spec"]["replicatedJobs"] = [worker]
        api.post(GROUPS, make.pod_group(name, min_member=2))
        api.post(JOBSETS, body)
    racks = racks_by(pods, 4 * NUMBER, lambda pod: pod["metadata"]["labels"][JOB_KEY])
    assert len(racks) == 2 * NUMBER
    assert all(len(own) == 2 and len(set(own)) == 1 for own in racks.values()), racks
    assert len({own[0] for own in racks.values()}) == 2 * NUMBER


def test_twenty_jobs_that_kueue_has_given_a_rack_start_whole_there(
    api: Api, pods: Following
) -> None:
    """Kueue chooses the rack and a host for each pod and opens its gate; the gang starts whole on
    those hosts.
    """
    for number in range(NUMBER):
        body = example("Job", file=QUEUES)
        name = body["metadata"]["name"] = f"bert-{number:02}"
        template = body["spec"]["template"]
        template["metadata"].setdefault("labels", {})[GROUP_LABEL] = name
        template["metadata"].setdefault("annotations", {})[REQUIRED] = RACK
        template["spec"]["containers"][0]["resources"]["limits"] = {make.GPU: GPUS}
        assert body["metadata"]["labels"][QUEUE_NAME] == "research"
        api.post(GROUPS, make.pod_group(name, min_member=2))
        api.post(JOBS, body)
    racks = racks_by(
        pods, 2 * NUMBER, lambda pod: pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
    )
    assert len(racks) == NUMBER
    assert all(len(own) == 2 and len(set(own)) == 1 for own in racks.values()), racks
    for pod in pods.objects().values():
        assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == pod["spec"]["nodeName"]
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"]
