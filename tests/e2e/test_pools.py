"""Two instances on one cluster, a node pool each: semantics I7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

pytestmark = pytest.mark.e2e

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
NAMES = {"a": "gangsched-training", "b": "gangsched-serving"}
SERVED = [*NAMES.values()]
GPUS = 4
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def pools(plane: ControlPlane) -> Iterator[dict[str, Daemon]]:
    """An instance for each of the pools "a" and "b"."""
    with ExitStack() as stack:
        yield {
            pool: stack.enter_context(
                Daemon(
                    plane,
                    scheduler_names=[NAMES[pool]],
                    extra_args=["--node-selector", f"pool={pool}"],
                    log_path=plane.logs / f"gangsched-{pool}.log",
                    ready_timeout_s=90.0,
                )
            )
            for pool in ("a", "b")
        }


def node(name: str, pool: str) -> Object:
    """A node of a pool; "" for one of none."""
    return make.node(name, gpus=GPUS, labels={"pool": pool} if pool else {})


def gang(name: str, pool: str, members: int, *, gpus: int = GPUS) -> list[Object]:
    """A gang for one of the instances."""
    return make.gang(name, members=members, gpus=gpus, scheduler_name=NAMES[pool])


def conditions(groups: Mapping[str, Object], name: str) -> dict[str, str]:
    """Type and status of the conditions of a PodGroup."""
    (group,) = (each for each in groups.values() if each["metadata"]["name"] == name)
    return {each["type"]: each["status"] for each in group.get("status", {}).get("conditions", ())}


def test_each_instance_uses_and_counts_its_own_nodes(pools: dict[str, Daemon], api: Api) -> None:
    """I7: gangs are bound in their pool; a refusal counts the pool's nodes; nodes of no pool are
    read by nobody.
    """
    make.create_all(
        api, [node("a0", "a"), node("a1", "a"), node("b0", "b"), node("x0", ""), node("x1", "")]
    )
    make.create_all(api, [*gang("ga", "a", 2), *gang("gb", "b", 1)])
    with Following(api, PODS) as pods:
        found = pods.wait_for(
            lambda items: nodes if len(nodes := nodes_of(items)) == 3 else None,
            within_s=WITHIN_S,
            what="3 bound pods",
        )
        assert {found["ga-0"], found["ga-1"]} == {"a0", "a1"}
        assert found["gb-0"] == "b0"
        make.create_all(api, [make.pod("late", gpus=GPUS, scheduler_name=NAMES["b"])])
        told = pods.wait_for(
            lambda items: next(
                (t for pod in items.values() if "nodes are available" in (t := refusal(pod)[1])),
                None,
            ),
            within_s=WITHIN_S,
            what="a refusal for lack of room",
        )
    assert "0/1 nodes are available" in told
    assert [pools[pool].metrics()["gangsched_nodes"] for pool in ("a", "b")] == [2, 1]


def test_a_node_that_changes_its_pool_keeps_its_pods(pools: dict[str, Daemon], api: Api) -> None:
    """I7, B5: the gang on it is not broken, and what is left of its room is the other pool's."""
    make.create_all(api, [node("a0", "a"), node("a1", "a")])
    make.create_all(api, gang("runs", "a", 2, gpus=3))
    make.create_all(api, gang("waits", "b", 1, gpus=1))
    with Following(api, PODS) as pods:
        before = pods.wait_for(
            lambda items: nodes if len(nodes := nodes_of(items, "runs-")) == 2 else None,
            within_s=WITHIN_S,
        )
        assert set(before.values()) == {"a0", "a1"}
        with Following(api, GROUPS) as groups:
            groups.wait_for(
                lambda items: conditions(items, "runs") == {"Scheduled": "True"},
                within_s=WITHIN_S,
                what="what runs is told",
            )
        api.patch(f"{NODES}/a1", {"metadata": {"labels": {"pool": "b"}}})
        placed = pods.wait_for(
            lambda items: nodes_of(items, "waits-") or None,
            within_s=WITHIN_S,
            what="the room of a1",
        )
        assert set(placed.values()) == {"a1"}
        # Pool "a" has one GPU left, on a0; its running gang has not changed.
        make.create_all(api, [*gang("small", "a", 1, gpus=1), *gang("late", "a", 1, gpus=1)])
        last = pods.wait_for(
            lambda items: nodes_of(items, "small-") | nodes_of(items, "late-") or None,
            within_s=WITHIN_S,
        )
        assert set(last.values()) == {"a0"}
        assert nodes_of(pods.objects(), "runs-") == before
    listed = {item["metadata"]["uid"]: item for item in api.list(GROUPS).items}
    assert conditions(listed, "runs") == {"Scheduled": "True"}
    assert [pools[pool].metrics()["gangsched_nodes"] for pool in ("a", "b")] == [1, 1]
    loud = [
        line["event"]
        for line in pools["a"].log_lines()
        if line.get("level") in {"warning", "error", "critical"}
    ]
    assert {
        event for event in loud if not event.startswith("No node has the labels of node_selector")
    } == set()
