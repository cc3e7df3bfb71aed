"""CompositePodGroups of Kubernetes 1.37 (KEP-6012) on its API server: trees of native PodGroups
start (I9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

pytestmark = pytest.mark.e2e

VERSION = "scheduling.k8s.io/v1alpha3"
COMPOSITES, GROUPS = f"/apis/{VERSION}/compositepodgroups", f"/apis/{VERSION}/podgroups"
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
GATES = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup")
RACK, WITHIN_S = "example.com/rack", 30.0
NUMBER = 20
SCHEDULED = "CompositePodGroupInitiallyScheduled"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of 1.37 that serves composites, with gangsched's manifests."""
    runtime = [f"{VERSION}=true", "scheduling.k8s.io/v1beta1=true"]
    with ControlPlane(
        release="1.37", feature_gates=dict.fromkeys(GATES, True), runtime_config=runtime
    ) as plane:
        apply_manifests(Api.of(plane))
        yield plane


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client; leaves no pod, group or node behind."""
    api = Api.of(plane)
    yield api
    for collection in (PODS, COMPOSITES, GROUPS, NODES):
        version, _, plural = collection.rpartition("/")
        for item in api.list(collection).items:
            namespace = item["metadata"].get("namespace")
            path = f"{version}/namespaces/{namespace}/{plural}" if namespace else collection
            name = item["metadata"]["name"]
            # Groups have finalizers, which their controllers would remove; nobody runs these here.
            if item["metadata"].get("finalizers"):
                api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})
            api.delete(f"{path}/{name}")
    api.close()


def racks(api: Api, number: int, gpus: int = 4) -> None:
    """So many racks of one node each."""
    make.create_all(
        api, [make.node(f"n{n:02}", gpus=gpus, labels={RACK: f"r{n:02}"}) for n in range(number)]
    )


def template(name: str) -> Object:
    """The reference to a template of a Workload that composites and their children must have; it
    need not exist.
    """
    return {"workloadName": "service", "templateName": name}


def composite(name: str, least: int, *, parent: str = "", rack: bool = False) -> Object:
    """A CompositePodGroup that needs `least` of its children, in one rack or anywhere."""
    spec: Object = {
        "schedulingPolicy": {"gang": {"minGroupCount": least}},
        "workloadRef": template("replica"),
    }
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if rack:
        spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": VERSION, "kind": "CompositePodGroup", "metadata": metadata, "spec": spec}


def gang(name: str, parent: str, members: int, gpus: int = 1) -> list[Object]:
    """A native PodGroup below a composite, and its members `name-0` …"""
    group: Object = {
        "apiVersion": VERSION,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": members}},
            "parentCompositePodGroupName": parent,
            "workloadRef": template("group"),
        },
    }
    spec = {"schedulingGroup": {"podGroupName": name}}
    return [group, *(make.pod(f"{name}-{n}", gpus=gpus, spec=spec) for n in range(members))]


def replica(name: str, parent: str) -> list[Object]:
    """A leader and three workers in one rack, both groups of a composite, which fill a node of 4
    GPUs.
    """
    return [
        composite(name, 2, parent=parent, rack=True),
        *gang(f"{name}-leader", name, 1),
        *gang(f"{name}-work", name, 3),
    ]


def service(name: str, least: int, replicas: int) -> list[Object]:
    """A tree of replicas."""
    below = (body for n in range(replicas) for body in replica(f"{name}-{n}", name))
    return [composite(name, least), *below]


def in_order(api: Api, bodies: Sequence[Object]) -> None:
    """Create objects one kind after the other, parents first."""
    for kind in ("CompositePodGroup", "PodGroup", "Pod"):
        for body in bodies:
            if body["kind"] == kind:
                api.post(api.path_of(body), body)


def condition(items: Mapping[str, Object], name: str) -> tuple[str, str, str]:
    """Status, reason and message of the condition of a composite; nothing yet if it has none."""
    for item in items.values():
        for entry in (
            item.get("status", {}).get("conditions", ()) if item["metadata"]["name"] == name else ()
        ):
            if entry["type"] == SCHEDULED:
                return entry["status"], entry["reason"], entry["message"]
    return "", "", ""


def reasons(items: Mapping[str, Object], prefix: str) -> set[str]:
    """Why pods of these names wait."""
    return {refusal(pod)[0] for pod in items.values() if pod["metadata"]["name"].startswith(prefix)}


def test_the_minimum_of_a_tree_starts_each_replica_in_its_rack(
    plane: ControlPlane, api: Api
) -> None:
    """Two of three replicas have room; the third waits whole, says why, and starts in the rack that
    comes.
    """
    racks(api, 2)
    with (
        Daemon(plane) as daemon,
        Following(api, PODS) as pods,
        Following(api, COMPOSITES) as composites,
    ):
        in_order(api, service("svc", 2, 3))
        found = pods.wait_for(
            lambda items: nodes if len(nodes := nodes_of(items, "svc-")) == 8 else None,
            within_s=WITHIN_S,
            what="two",
        )
        where = {name.split("-")[1]: node for name, node in found.items()}
        assert len(where) == len(set(where.values())) == 2
        composites.wait_for(
            lambda items: condition(items, "svc")[0] == "True",
            within_s=WITHIN_S,
            what="the tree's condition",
        )
        (left,) = {"0", "1", "2"} - set(where)
        said = composites.wait_for(
            lambda items: (
                found if (found := condition(items, f"svc-{left}"))[0] == "False" else None
            ),
            within_s=WITHIN_S,
            what="a reason for the third",
        )
        assert said[1] == "Unschedulable", said
        pods.wait_for(
            lambda items: reasons(items, f"svc-{left}-") == {"Unschedulable"},
            within_s=WITHIN_S,
            what="a reason for its pods",
        )
        make.create_all(api, [make.node("n99", gpus=4, labels={RACK: "r99"})])
        found = pods.wait_for(
            lambda items: nodes if len(nodes := nodes_of(items, f"svc-{left}-")) == 4 else None,
            within_s=WITHIN_S,
            what="the third",
        )
        assert set(found.values()) == {"n99"}
        composites.wait_for(
            lambda items: condition(items, f"svc-{left}")[0] == "True",
            within_s=WITHIN_S,
            what="its condition",
        )
        assert not [
            line
            for line in daemon.log_lines()
            if line.get("level") in {"warning", "error", "critical"}
        ]


def test_a_tree_without_its_minimum_leaves_everything_free(plane: ControlPlane, api: Api) -> None:
    """One rack for two replicas: nothing starts; the composite of the tree has the reason."""
    racks(api, 1)
    with Daemon(plane), Following(api, PODS) as pods, Following(api, COMPOSITES) as composites:
        in_order(api, service("svc", 2, 2))
        said = composites.wait_for(
            lambda items: found if (found := condition(items, "svc"))[0] == "False" else None,
            within_s=WITHIN_S,
            what="a reason",
        )
        assert said[1] == "Unschedulable", said
        make.create_all(api, [make.pod("after", gpus=4)])
        pods.wait_for(
            lambda items: nodes_of(items, "after") or None,
            within_s=WITHIN_S,
            what="a pod beside it",
        )
        assert not nodes_of(pods.objects(), "svc-")


def test_a_gang_waits_until_its_composite_exists(plane: ControlPlane, api: Api) -> None:
    """A PodGroup may come before its parent."""
    racks(api, 2)
    with Daemon(plane), Following(api, PODS) as pods:
        in_order(api, gang("early", "late", 2))
        pods.wait_for(
            lambda items: reasons(items, "early-") == {"WaitingForGang"},
            within_s=WITHIN_S,
            what="a reason",
        )
        in_order(api, [composite("late", 1)])
        pods.wait_for(
            lambda items: len(nodes_of(items, "early-")) == 2, within_s=WITHIN_S, what="the gang"
        )


def test_twenty_trees_start_whole_though_the_scheduler_is_killed(
    plane: ControlPlane, api: Api
) -> None:
    """Each replica rests at none or all of its pods, and each tree at none or its two replicas."""
    racks(api, 2 * NUMBER)
    daemon = Daemon(plane)
    with daemon, Following(api, PODS) as pods:
        for number in range(NUMBER):
            in_order(api, service(f"t{number:02}", 2, 2))
            if number % 5 == 2:
                daemon.kill()
                daemon.start()
        found = pods.wait_for(
            lambda items: nodes if len(nodes := nodes_of(items, "t")) == 8 * NUMBER else None,
            within_s=4 * WITHIN_S,
            what=f"{8 * NUMBER} pods",
        )
        of_replica: dict[str, set[str]] = {}
        for name, node in found.items():
            of_replica.setdefault(name.rpartition("-")[0].rpartition("-")[0], set()).add(node)
        assert len(of_replica) == 2 * NUMBER
        assert all(len(nodes) == 1 for nodes in of_replica.values()), of_replica
