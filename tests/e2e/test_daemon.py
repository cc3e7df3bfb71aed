"""The daemon as users meet it: a real API server, kwok nodes, the rights of its ServiceAccount and
no others.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import apply_crds, apply_manifests
from control_plane.daemon import CONTAINER_UID, Daemon, as_in_a_container
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e.conftest import PODS, delete_all

pytestmark = pytest.mark.e2e

WITHIN_S = 20.0
PLANE = {"kwok": True}
CLUSTER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched"


def wait_until(holds: Callable[[], bool], what: str, *, within_s: float = WITHIN_S) -> None:
    """Until `holds`; fails with `what` after `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, f"there is still not {what} after {within_s:g} s"
        time.sleep(0.05)


def condition(pods: Mapping[str, Object], name: str) -> tuple[str, str] | None:
    """Reason and message of a pod's PodScheduled=False, once it has one."""
    said = [refusal(pod) for pod in pods.values() if pod["metadata"]["name"] == name]
    return said[0] if said and any(said[0]) else None


def gpus_in_use(pods: Mapping[str, Object]) -> Counter[str]:
    """GPUs requested per node by bound pods."""
    used: Counter[str] = Counter()
    for pod in pods.values():
        if pod["spec"].get("nodeName"):
            limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
            used[pod["spec"]["nodeName"]] += int(limits.get(make.GPU, 0))
    return used


def events(api: Api, reason: str) -> list[str]:
    """Notes of the Events with this reason."""
    return [
        item["note"]
        for item in api.list("/apis/events.k8s.io/v1/events").items
        if item["reason"] == reason
    ]


def started_gangs(daemon: Daemon) -> list[str]:
    """The gang of each line of the audit trail about a start."""
    return [line["gang"] for line in daemon.log_lines() if line.get("event") == "Started"]


def wait_for_event(api: Api, reason: str, fragment: str) -> None:
    """Until an Event with this reason says `fragment`."""
    with Following(api, "/apis/events.k8s.io/v1/events") as seen:
        seen.wait_for(
            lambda items: any(
                e["reason"] == reason and fragment in e.get("note", "") for e in items.values()
            ),
            within_s=WITHIN_S,
            what=f"an Event {reason} that says {fragment!r}",
        )


def test_a_gang_of_200_is_one_plan(plane: ControlPlane, api: Api) -> None:
    """All 200 members are bound, from a single plan, whose planning time is in the log."""
    make.create_all(api, [make.node(f"n{index:03}") for index in range(100)])
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        make.create_all(api, make.gang("big", members=200, gpus=4))
        pods.wait_for(
            lambda items: len(nodes_of(items, "big-")) == 200,
            within_s=WITHIN_S,
            what="200 bound pods",
        )
        assert max(gpus_in_use(pods.objects()).values()) == 8
        plans = [line for line in daemon.log_lines() if line.get("event") == "planned"]
        assert [(plan["binds_ordered"], plan["groups"]) for plan in plans] == [(200, 1)]
        assert plans[0]["ms"] > 0
        wait_until(
            lambda: started_gangs(daemon) == ["default/big"],
            "one line that says that the gang started",
        )
        print(f"planning 200 pods on 100 nodes took {plans[0]['ms']} ms")


def test_killed_in_the_middle_of_binding(plane: ControlPlane, api: Api) -> None:
    """After kill -9 with part of a gang bound, a restart completes it: nothing twice, nothing
    over-committed.
    """
    make.create_all(api, [make.node(f"n{index}") for index in range(8)])
    for attempt in range(5):
        name = f"crash{attempt}"
        with Following(api, PODS) as pods:
            # One connection makes the binding of a gang last long enough to be interrupted.
            daemon = Daemon(plane, environment={"GANGSCHED_BIND_CONNECTIONS": "1"})
            daemon.start()
            make.create_all(api, make.gang(name, members=64, gpus=1))
            pods.wait_for(
                lambda items, name=name: len(nodes_of(items, f"{name}-")) >= 5,  # type: ignore[misc]
                within_s=WITHIN_S,
                what="the first binds",
            )
            daemon.kill()
            before = nodes_of(
                {pod["metadata"]["uid"]: pod for pod in api.list(PODS).items}, f"{name}-"
            )
            print(f"killed with {len(before)} of 64 bound")
            if len(before) == 64:
                delete_all(api, PODS)
                continue  # it was too fast to be interrupted: once more
            with Daemon(plane):
                pods.wait_for(
                    lambda items, name=name: len(nodes_of(items, f"{name}-")) == 64,  # type: ignore[misc]
                    within_s=10.0,
                    what="the rest of the gang",
                )
            after = nodes_of(pods.objects(), f"{name}-")
            assert {pod: after[pod] for pod in before} == before
            assert all(used <= 8 for used in gpus_in_use(pods.objects()).values())
            return
    pytest.fail("the gang was bound before it could be interrupted, five times over")


def test_definitions_may_come_later() -> None:
    """Without the PodGroup definitions annotation gangs are served; gangs of a definition installed
    later are too.
    """
    with ControlPlane(kwok=True) as plane:
        api = Api.of(plane)
        apply_manifests(api, crds=False)
        make.create_all(api, [make.node("n0")])
        with Daemon(plane) as daemon, Following(api, PODS) as pods:
            notes = make.gang_annotations("early", 2)
            make.create_all(
                api, [make.pod(f"early-{index}", gpus=1, annotations=notes) for index in range(2)]
            )
            make.create_all(
                api, [make.pod(f"late-{index}", gpus=1, gang="late") for index in range(2)]
            )
            pods.wait_for(
                lambda items: len(nodes_of(items, "early-")) == 2,
                within_s=WITHIN_S,
                what="an annotation gang",
            )
            pods.wait_for(
                lambda items: condition(items, "late-0"),
                within_s=WITHIN_S,
                what="a reason for late-0",
            )
            reason, message = condition(pods.objects(), "late-0") or ("", "")
            assert reason == "PodGroupMissing"
            assert message.startswith(
                "the API server does not serve PodGroups of scheduling.x-k8s.io"
            )
            pid = daemon.pid
            apply_crds(api)
            make.create_all(api, [make.pod_group("late", min_member=2)])
            pods.wait_for(
                lambda items: len(nodes_of(items, "late-")) == 2,
                within_s=30.0,
                what="the PodGroup gang",
            )
            assert daemon.pid == pid
            daemon.check()


BAD_INPUT = {
    "min-is-no-number": ({"min-available": "abc"}, "abc"),
    "min-is-negative": ({"min-available": "-3"}, "-3"),
    "groups-are-no-json": ({"min-available": "1", "groups": "[nonsense"}, "[nonsense"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_annotations(case: str, plane: ControlPlane, api: Api) -> None:
    """A bad value is named in an Event, and everybody else is scheduled."""
    values, said = BAD_INPUT[case]
    make.create_all(api, [make.node("n0")])
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        bad = {make.KOORDINATOR + key: value for key, value in {"name": case, **values}.items()}
        make.create_all(api, [make.pod(f"{case}-0", annotations=bad)])
        make.create_all(api, make.gang("good", members=2, gpus=1))
        pods.wait_for(
            lambda items: len(nodes_of(items, "good-")) == 2,
            within_s=WITHIN_S,
            what="the good gang",
        )
        wait_for_event(api, "InvalidGang", said)
        daemon.check()


def test_a_giant_pod_and_an_empty_node(plane: ControlPlane, api: Api) -> None:
    """A pod of 1.4 MB is scheduled like any other; a node without allocatable is named in the log
    and left alone.
    """
    make.create_all(api, [make.node("n0")])
    hollow = make.node("hollow")
    del hollow["status"]
    make.create_all(api, [hollow])
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        giant = make.pod("giant")
        giant["spec"]["containers"][0]["args"] = ["x" * 100_000] * 14
        make.create_all(api, [giant, *make.gang("good", members=2, gpus=1)])
        pods.wait_for(
            lambda items: len(nodes_of(items, "g")) == 3, within_s=WITHIN_S, what="all three pods"
        )
        assert set(nodes_of(pods.objects(), "g").values()) == {"n0"}
        assert any(
            "Node hollow has no allocatable" in json.dumps(line) for line in daemon.log_lines()
        )
        daemon.check()


def test_one_node_asked_for_more_than_int64_is_full(plane: ControlPlane, api: Api) -> None:
    """I8: 1,100 pods that name their node and ask for 8 PiB each end no process, at a rebuild or at
    the start.
    """
    make.create_all(api, [make.node("n0", pods=2_000), make.node("n1", gpus=4)])
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        greedy = [
            make.pod(f"greedy-{i}", memory=str(2**53), spec={"nodeName": "n0"})
            for i in range(1_100)
        ]
        make.create_all(api, greedy)
        make.create_all(api, [make.node("n2", gpus=4)])  # rebuilds every column
        make.create_all(api, make.gang("running", members=4, gpus=1))
        pods.wait_for(
            lambda items: len(nodes_of(items, "running-")) == 4,
            within_s=WITHIN_S,
            what="a gang beside them",
        )
        daemon.check()
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        make.create_all(api, make.gang("restarted", members=4, gpus=1))
        pods.wait_for(
            lambda items: len(nodes_of(items, "restarted-")) == 4,
            within_s=WITHIN_S,
            what="a gang later",
        )
        found = nodes_of(pods.objects(), "restarted-") | nodes_of(pods.objects(), "running-")
        assert set(found.values()) == {"n1", "n2"}
        daemon.check()


def test_it_only_asks_for_what_its_role_allows(plane: ControlPlane, api: Api) -> None:
    """Under its own ServiceAccount the daemon is never refused anything it asks for."""
    make.create_all(api, [make.node("n0", gpus=2)])
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        make.create_all(
            api, [*make.gang("fits", members=2, gpus=1), *make.gang("waits", members=3, gpus=1)]
        )
        pods.wait_for(
            lambda items: len(nodes_of(items, "fits-")) == 2 and condition(items, "waits-0"),
            within_s=WITHIN_S,
            what="a gang that runs and one that is told why it waits",
        )
        wait_for_event(api, "Unschedulable", "needs 3 pods of 1 nvidia.com/gpu")
        assert not [line for line in daemon.log_lines() if "forbidden" in json.dumps(line).lower()]
        with pytest.raises(ApiError, match="404"):
            api.get("/api/v1/namespaces/default/pods/none")


def test_podgroups_are_followed_under_a_uid_without_a_name(plane: ControlPlane, api: Api) -> None:
    """The image runs under a number: no passwd entry, no HOME, no USER. kopf follows PodGroups
    there all the same.
    """
    if not as_in_a_container():
        pytest.skip(
            "this kernel makes no user namespaces for this user, so no process can have the"
            " image's UID"
        )
    with Daemon(plane) as daemon:
        process = Path("/proc") / str(daemon.pid)
        assert (process / "uid_map").read_text().split()[0] == str(CONTAINER_UID)
        names = {entry.partition("=")[0] for entry in (process / "environ").read_text().split("\0")}
        assert not names & {"HOME", "USER", "LOGNAME", "KUBECONFIG"}
        wait_until(
            lambda: follows_podgroups(daemon), "a daemon that follows both API groups of PodGroups"
        )
        assert daemon.metrics()["gangsched_podgroups_followed"] == 1.0


def follows_podgroups(daemon: Daemon) -> bool:
    """Whether kopf was started for both API groups, and each was listed again while it ran. Fails
    if it ended.
    """
    metrics = daemon.metrics()
    starts, sweeps, faults = (
        metrics[f'gangsched_operator_{name}_total{{part="podgroups"}}']
        for name in ("starts", "sweeps", "faults")
    )
    assert not faults, daemon.log_lines()[-3:]
    return starts == 2 and sweeps == 4


def test_podgroups_that_cannot_be_read_are_not_said_to_be_missing(
    plane: ControlPlane, api: Api
) -> None:
    """A replica that may not watch PodGroups says so on pods and /readyz, and schedules their gangs
    once it may.
    """
    make.create_all(api, [make.node("n0")])
    role = api.get(CLUSTER_ROLE)
    kept = [rule for rule in role["rules"] if "podgroups" not in rule["resources"]]
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        # before kopf listens: a watch that is open stays open
        api.put(CLUSTER_ROLE, role | {"rules": kept})
        try:
            wait_until(
                lambda: daemon.http("/readyz")[0] == HTTPStatus.SERVICE_UNAVAILABLE,
                "an unready replica",
            )
            make.create_all(
                api,
                [
                    make.pod_group("hidden", min_member=1),
                    make.pod("hidden-0", gpus=1, gang="hidden"),
                ],
            )
            pods.wait_for(
                lambda items: condition(items, "hidden-0"),
                within_s=WITHIN_S,
                what="a reason for hidden-0",
            )
            reason, message = condition(pods.objects(), "hidden-0") or ("", "")
            assert reason == "PodGroupsUnreadable"
            assert "it is unknown whether PodGroup default/hidden exists" in message
        finally:
            api.put(CLUSTER_ROLE, api.get(CLUSTER_ROLE) | {"rules": role["rules"]})
        pods.wait_for(
            lambda items: nodes_of(items, "hidden-"),
            within_s=60.0,
            what="the gang, once it may be read",
        )
        wait_until(lambda: daemon.http("/readyz")[0] == HTTPStatus.OK, "a ready replica")
