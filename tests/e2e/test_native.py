"""Native PodGroups (scheduling.k8s.io, feature gate GenericWorkload) through the daemon on a real
API server.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e.conftest import PODS

pytestmark = pytest.mark.e2e

NATIVE = "/apis/scheduling.k8s.io/v1alpha2/podgroups"
X_K8S = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
EVENTS = "/apis/events.k8s.io/v1/events"
WITHIN_S = 20.0
#: All that decides which fields a native PodGroup of Kubernetes 1.36 may have.
GATES = (
    "GenericWorkload",
    "GangScheduling",
    "TopologyAwareWorkloadScheduling",
    "DRAWorkloadResourceClaims",
    "WorkloadAwarePreemption",
)
PLANE = {
    "feature_gates": dict.fromkeys(GATES, True),
    "runtime_config": ["scheduling.k8s.io/v1alpha2=true"],
}


@pytest.fixture(autouse=True)
def _node(api: Api) -> None:
    """One node of 8 GPUs."""
    make.create_all(api, [make.node("n0", gpus=8)])


def native_gang(
    name: str, *, members: int, gpus: int, policy: Object, scheduler_name: str = "gangsched"
) -> list[Object]:
    """A native PodGroup with this schedulingPolicy, and its members `name-0` …"""
    group: Object = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy},
    }
    named = {"schedulingGroup": {"podGroupName": name}}
    pods = [
        make.pod(f"{name}-{i}", gpus=gpus, spec=named, scheduler_name=scheduler_name)
        for i in range(members)
    ]
    return [group, *pods]


def condition(groups: Mapping[str, Object], name: str, status: str) -> Object | None:
    """The PodGroupScheduled condition of a native PodGroup, once it has this status."""
    for group in groups.values():
        if group["metadata"]["name"] == name:
            for entry in group.get("status", {}).get("conditions", ()):
                if entry["type"] == "PodGroupScheduled" and entry["status"] == status:
                    return dict(entry)
    return None


def test_a_native_gang_is_bound_whole_and_says_so(plane: ControlPlane, api: Api) -> None:
    """All members of a native gang are bound and PodGroupScheduled is True; a condition of others
    is left alone.
    """
    with Daemon(plane) as daemon, Following(api, PODS) as pods, Following(api, NATIVE) as groups:
        group, *members = native_gang("native", members=4, gpus=2, policy={"gang": {"minCount": 4}})
        api.post(api.path_of(group), group)
        theirs = {
            "type": "DisruptionTarget",
            "status": "False",
            "reason": "ByOthers",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        path = f"{api.path_of(group)}/native/status"
        api.patch(path, {"status": {"conditions": [theirs]}})
        make.create_all(api, members)
        pods.wait_for(
            lambda items: len(nodes_of(items, "native-")) == 4,
            within_s=WITHIN_S,
            what="the native gang",
        )
        said = groups.wait_for(
            lambda items: condition(items, "native", "True"), within_s=WITHIN_S, what="True"
        )
        assert (said["reason"], said["message"].partition(" (")[0]) == (
            "Scheduled",
            "4 of 4 members are bound",
        )
        types = [entry["type"] for entry in api.get(path)["status"]["conditions"]]
        assert sorted(types) == ["DisruptionTarget", "PodGroupSatisfied", "PodGroupScheduled"]
        assert not [
            line
            for line in daemon.log_lines()
            if line.get("level") in {"warning", "error", "critical"}
        ]


def test_a_native_gang_that_does_not_fit_says_why(plane: ControlPlane, api: Api) -> None:
    """Nothing of a native gang one GPU too big is bound; its condition is False, Unschedulable, and
    counts.
    """
    with Daemon(plane), Following(api, PODS) as pods, Following(api, NATIVE) as groups:
        make.create_all(
            api, native_gang("toobig", members=3, gpus=3, policy={"gang": {"minCount": 3}})
        )
        said = groups.wait_for(
            lambda items: condition(items, "toobig", "False"), within_s=WITHIN_S, what="False"
        )
        assert said["reason"] == "Unschedulable"
        assert "it needs 3 pods of 3 nvidia.com/gpu" in said["message"]
        assert "hold 2 even when empty" in said["message"]
        make.create_all(api, [make.pod("after", gpus=8)])
        pods.wait_for(
            lambda items: len(nodes_of(items, "after")) == 1,
            within_s=WITHIN_S,
            what="a pod that fits",
        )
        assert len(nodes_of(pods.objects(), "toobig-")) == 0


def test_a_native_gang_that_asks_for_what_is_not_honoured_waits(
    plane: ControlPlane, api: Api
) -> None:
    """Its pods and its condition name the field, for each field of 1.36; a gang without these
    starts beside it.

    Another field, parentCompositePodGroupName, comes with Kubernetes 1.37:
    tests/unit/state/test_gang_view.py.
    """
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    api.post("/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
    asked: dict[str, tuple[str, Object]] = {"first": ("priority", {"priorityClassName": "urgent"})}
    with Daemon(plane), Following(api, PODS) as pods, Following(api, NATIVE) as groups:
        for name, (_, fields) in asked.items():
            group, *members = native_gang(name, members=2, gpus=1, policy={"gang": {"minCount": 2}})
            make.create_all(api, [group | {"spec": {**group["spec"], **fields}}, *members])
        make.create_all(
            api, native_gang("plain", members=2, gpus=1, policy={"gang": {"minCount": 2}})
        )
        pods.wait_for(
            lambda items: len(nodes_of(items, "plain-")) == 2,
            within_s=WITHIN_S,
            what="a gang that may start",
        )
        for name, (field, _) in asked.items():
            said = groups.wait_for(
                lambda items, name=name: condition(items, name, "False"),  # type: ignore[misc]
                within_s=WITHIN_S,
                what=f"a reason for {name}",
            )
            waiting = pods.wait_for(
                lambda items, name=name: [  # type: ignore[misc]
                    pod
                    for pod in items.values()
                    if pod["metadata"]["name"].startswith(f"{name}-") and refusal(pod)[0]
                ],
                within_s=WITHIN_S,
                what=f"a reason for the pods of {name}",
            )
            for reason, message in ((said["reason"], said["message"]), *map(refusal, waiting)):
                assert (reason, f"spec.{field} " in message) == ("Unsupported", True), (
                    name,
                    reason,
                    message,
                )
        assert set(nodes_of(pods.objects())) == {"plain-0", "plain-1"}


def test_a_native_gang_starts_in_one_domain(plane: ControlPlane, api: Api) -> None:
    """Its scheduling constraints hold: racks that take half of it do not start it, one that takes
    all does.
    """
    for rack in "ab":
        make.create_all(api, [make.node(f"{rack}0", gpus=8, labels={"example.com/rack": rack})])
    group, *members = native_gang("racked", members=3, gpus=8, policy={"gang": {"minCount": 2}})
    group["spec"]["schedulingConstraints"] = {"topology": [{"key": "example.com/rack"}]}
    with Daemon(plane), Following(api, PODS) as pods, Following(api, NATIVE) as groups:
        make.create_all(api, [group, *members])
        said = groups.wait_for(
            lambda items: condition(items, "racked", "False"), within_s=WITHIN_S, what="a reason"
        )
        assert "in one example.com/rack" in said["message"]
        assert not nodes_of(pods.objects(), "racked-")
        make.create_all(api, [make.node("b1", gpus=8, labels={"example.com/rack": "b"})])
        found = pods.wait_for(
            lambda items: nodes if len(nodes := nodes_of(items, "racked-")) == 2 else None,
            within_s=WITHIN_S,
            what="the gang in the rack that takes it",
        )
        assert set(found.values()) == {"b0", "b1"}


def test_basic_policy_schedules_every_member_alone(plane: ControlPlane, api: Api) -> None:
    """Under the basic policy two of three members are bound where only two fit."""
    with Daemon(plane), Following(api, PODS) as pods:
        make.create_all(api, native_gang("basic", members=3, gpus=3, policy={"basic": {}}))
        pods.wait_for(
            lambda items: len(nodes_of(items, "basic-")) == 2, within_s=WITHIN_S, what="two members"
        )


def test_groups_of_others_are_not_touched(plane: ControlPlane, api: Api) -> None:
    """No status and no Event on PodGroups, native or not, whose pods are all for other schedulers
    or that have none.
    """
    with Daemon(plane), Following(api, PODS) as pods, Following(api, NATIVE) as groups:
        foreign = native_gang(
            "foreign", members=2, gpus=1, policy={"gang": {"minCount": 2}}, scheduler_name="other"
        )
        empty = native_gang("empty", members=0, gpus=0, policy={"gang": {"minCount": 2}})
        make.create_all(api, [*foreign, *empty])
        make.create_all(api, make.gang("foreign-crd", members=2, scheduler_name="other"))
        make.create_all(api, [make.pod_group("empty-crd", min_member=2)])
        api.bind("default", "foreign-0", "n0")
        make.create_all(
            api, native_gang("ours", members=2, gpus=1, policy={"gang": {"minCount": 2}})
        )
        pods.wait_for(
            lambda items: len(nodes_of(items, "ours-")) == 2, within_s=WITHIN_S, what="our gang"
        )
        groups.wait_for(
            lambda items: condition(items, "ours", "True"), within_s=WITHIN_S, what="our condition"
        )
        rejected = {"status": {"phase": "Failed", "reason": "OutOfcpu"}}
        api.patch("/api/v1/namespaces/default/pods/foreign-0/status", rejected)
        # A second gang of ours goes all the way after that, so whatever was to be said of the first
        # has been said.
        make.create_all(
            api, native_gang("later", members=2, gpus=1, policy={"gang": {"minCount": 2}})
        )
        groups.wait_for(
            lambda items: condition(items, "later", "True"),
            within_s=WITHIN_S,
            what="our next condition",
        )
        for path in (NATIVE, X_K8S):
            for group in api.list(path).items:
                if group["metadata"]["name"].startswith(("foreign", "empty")):
                    said = group.get("status", {}).get("conditions", ())
                    # The default of our definitions, which nobody wrote.
                    assert {entry["reason"] for entry in said} <= {"NoPods"}, group
        about = {event["regarding"]["name"] for event in api.list(EVENTS).items}
        assert not [name for name in about if name.startswith(("foreign", "empty"))]


def test_an_annotation_gang_does_not_take_a_native_group_of_its_name(
    plane: ControlPlane, api: Api
) -> None:
    """A native PodGroup whose name an annotation gang of ours happens to share is neither read nor
    written.
    """
    with Daemon(plane), Following(api, PODS) as pods:
        make.create_all(
            api, native_gang("shared", members=0, gpus=0, policy={"gang": {"minCount": 9}})
        )
        notes = make.gang_annotations("shared", 2)
        make.create_all(api, [make.pod(f"shared-{i}", gpus=1, annotations=notes) for i in range(2)])
        pods.wait_for(
            lambda items: len(nodes_of(items, "shared-")) == 2,
            within_s=WITHIN_S,
            what="the annotation gang",
        )
        make.create_all(
            api, native_gang("last", members=1, gpus=1, policy={"gang": {"minCount": 1}})
        )
        with Following(api, NATIVE) as groups:
            groups.wait_for(
                lambda items: condition(items, "last", "True"),
                within_s=WITHIN_S,
                what="a condition",
            )
        assert not api.get(
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/shared"
        ).get("status")
