"""manifests/monitoring on a real Prometheus that scrapes the daemon: every query of the dashboard
and of the alerts.

Invariant: a query must return a number, or be one of those that need a fault (`NEED_A_FAULT`); then
each of its selectors must match a series all the same, so that no misspelt name passes for a quiet
cluster.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.monitoring import Panel, alerts, panels, rules, selectors
from control_plane.pods import nodes_of
from control_plane.prometheus import BIN, Prometheus

from tests.e2e.conftest import PODS, delete_all

pytestmark = pytest.mark.e2e

PLANE = {"kwok": True}
WITHIN_S = 60.0
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}
RUN_TIME = {"gangsched.dev/expected-runtime": "1h"}
NEED_A_FAULT = {"API server errors": 1}
"""Of these panels, how many queries are empty where nothing fails."""
FIRE = {"GangschedGangBroken", "GangschedTimeouts"}
"""What the cluster of this test has; nothing else is wrong with it."""
SLOW_MACHINE = {"GangschedLoopLate", "GangschedBindsSlow"}
"""What a machine that is busy with other things may have as well."""


class Cluster:
    """Two nodes of eight GPUs, and pods that come and go there."""

    def __init__(self, api: Api, pods: Following) -> None:
        self.api, self._pods = api, pods

    def start(self, name: str, members: int, **options: object) -> None:
        """A gang comes and is bound."""
        make.create_all(self.api, make.gang(name, members=members, **options))  # type: ignore[arg-type]
        self.is_bound(name, members)

    def is_bound(self, name: str, members: int) -> None:
        """Wait for it."""
        self._pods.wait_for(
            lambda items: len(nodes_of(items, f"{name}-")) == members,
            within_s=WITHIN_S,
            what=f"gang {name} to be bound",
        )

    def delete(self, name: str) -> None:
        """A pod goes."""
        self.api.delete(f"/api/v1/namespaces/default/pods/{name}")
        self._pods.wait_for(
            lambda items: all(pod["metadata"]["name"] != name for pod in items.values()),
            within_s=WITHIN_S,
            what=f"the end of pod {name}",
        )


def has(
    prometheus: Prometheus, query: str, holds: Callable[[float], bool] = lambda value: value >= 1
) -> None:
    """Wait until the first series of a query is so."""
    prometheus.wait_for(
        lambda: any(holds(value) for _, value in prometheus.query(query)),
        within_s=WITHIN_S,
        what=query,
    )


def live(cluster: Cluster, prometheus: Prometheus) -> None:
    """Starts, a reservation that is kept, a preemption, a timeout, a broken gang, and one that
    waits.
    """
    cluster.start("ends", 2, gpus=8, annotations=RUN_TIME)
    make.create_all(cluster.api, make.gang("next", members=2, gpus=8, annotations=RUN_TIME))
    has(prometheus, 'sum(gangsched_reservations{kind="timed"})')
    for index in range(2):
        cluster.delete(f"ends-{index}")
    cluster.is_bound("next", 2)
    cluster.start("urgent", 1, gpus=8, spec={"priorityClassName": "urgent"})
    has(prometheus, 'sum(gangsched_preemption_nomination_seconds_count{result="started"})')
    cluster.start("loses", 2, gpus=2)
    waits = make.gang_annotations("holds", 2, mode="NonStrict", waiting_time="2s")
    make.create_all(
        cluster.api, [make.pod(f"holds-{index}", gpus=4, annotations=waits) for index in range(2)]
    )
    has(prometheus, "sum(gangsched_timeouts_total)")
    cluster.delete("loses-0")
    make.create_all(cluster.api, [make.pod("loses-2", gang="loses", gpus=8)])
    has(prometheus, "sum(gangsched_broken_gangs)")
    has(prometheus, 'sum(gangsched_pending_gangs{reason="Unschedulable"})')


@pytest.fixture(scope="module")
def prometheus(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Prometheus after some life, under the rights and settings of the manifests."""
    folder = tmp_path_factory.mktemp("prometheus")
    rule_file = folder / "rules.yaml"
    rule_file.write_text(yaml.safe_dump(rules()))
    api = Api.of(plane)
    make.create_all(
        api, [make.released_lease(), PRIORITY, *(make.node(f"n{index}") for index in range(2))]
    )
    daemon = Daemon(plane, extra_args=["--leader-elect"], ready_timeout_s=90.0)
    with (
        daemon,
        Prometheus(folder, {"gangsched-0": daemon.health_port}, rules=rule_file) as started,
    ):
        with Following(api, PODS) as pods:
            live(Cluster(api, pods), started)
        yield started
    delete_all(api, PODS, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", "/api/v1/nodes")
    api.close()


def numbers(prometheus: Prometheus, expression: str) -> list[float]:
    """What a query returns, without the NaN that a quantile of nothing is."""
    return [value for _, value in prometheus.query(expression) if not math.isnan(value)]


def missing(prometheus: Prometheus, expression: str) -> list[str]:
    """The selectors of a query that match no series."""
    return [each for each in selectors(expression) if not prometheus.query(each)]


@pytest.mark.parametrize("panel", list(panels(interval="15m")), ids=lambda panel: panel.title)
def test_every_panel_has_data(prometheus: Prometheus, panel: Panel) -> None:
    """Each query of the dashboard returns numbers, or nothing where nothing failed, and all that it
    names exists.
    """
    empty = [
        query.expression for query in panel.queries if not numbers(prometheus, query.expression)
    ]
    assert len(empty) == NEED_A_FAULT.get(panel.title, 0), empty
    assert not [each for query in panel.queries for each in missing(prometheus, query.expression)]


def test_the_alerts_that_fire_are_those_of_this_cluster(prometheus: Prometheus) -> None:
    """Every expression is accepted and names what exists; it holds for what is wrong here, and for
    nothing else.
    """
    assert not [each for alert in alerts() for each in missing(prometheus, alert.expression)]
    assert {
        alert.name for alert in alerts() if prometheus.query(alert.expression)
    } - SLOW_MACHINE == FIRE


def test_prometheus_took_all_rules(prometheus: Prometheus) -> None:
    """It evaluates them itself, a moment after the scrape, and knows those that hold as pending or
    firing.
    """

    def known() -> set[str]:
        return {labels["alertname"] for labels, _ in prometheus.query("ALERTS")} - SLOW_MACHINE

    prometheus.wait_for(
        lambda: known() >= FIRE, within_s=WITHIN_S, what=f"the alerts {sorted(FIRE)}"
    )
    assert known() == FIRE


def test_the_numbers_are_those_of_the_cluster(prometheus: Prometheus, plane: ControlPlane) -> None:
    """What is said to wait is what has no node; the one replica leads; every watch was heard of
    lately.
    """
    waiting = [pod for pod in Api.of(plane).list(PODS).items if not pod["spec"].get("nodeName")]
    assert numbers(prometheus, "sum(gangsched_pending_pods)") == [len(waiting)]
    assert numbers(prometheus, "sum(leader_election_master_status)") == [1]
    assert max(numbers(prometheus, "gangsched_watch_staleness_seconds")) < 150.0


def test_promtool_finds_the_rules_well_formed_and_true(tmp_path: Path) -> None:
    """`promtool check rules` and `promtool test rules`: each alert fires in its case, and none
    where all is well.
    """
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    shutil.copy(Path(__file__).parents[1] / "monitoring" / "alerts.yaml", tmp_path)
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "alerts.yaml"]):
        done = subprocess.run(
            [BIN / "promtool", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
