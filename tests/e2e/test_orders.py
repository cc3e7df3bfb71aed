"""The verbs of the runbook on a real API server: an administrator's annotations of the Lease,
obeyed within seconds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import DEFINITIONS, remove_definition
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e.conftest import PODS, delete_all
from tests.e2e.installing import run

pytestmark = pytest.mark.e2e

LEASE = "kubectl -n gangsched-system annotate lease gangsched --overwrite"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases"
PODS_HERE = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
WITHIN_S = 20.0
AT_ONCE_S = 5.0
"""The leader reads the Lease when it renews it, every 2 s."""
ELECTS = ("--leader-elect",)


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client; leaves no pod, PodGroup, node or Lease behind."""
    api = Api.of(plane)
    yield api
    delete_all(api, PODS, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", "/api/v1/nodes")
    api.delete(f"{CLASSES}/urgent")
    api.delete(f"{LEASES}/gangsched")
    api.close()


def ordered(plane: ControlPlane, order: str) -> None:
    """The administrator types an order."""
    run(plane, "bash", "-c", f"{LEASE} {order}")


def wait_logged(daemon: Daemon, fragment: str, within_s: float = AT_ONCE_S) -> None:
    """Until a line of the log has this."""
    deadline_s = time.monotonic() + within_s
    while not any(fragment in line["event"] for line in daemon.log_lines()):
        assert time.monotonic() < deadline_s, [line["event"] for line in daemon.log_lines()]
        time.sleep(0.05)


def wait_bound(pods: Following, prefix: str, number: int) -> None:
    """Until so many pods with this prefix are bound."""
    pods.wait_for(
        lambda items: len(nodes_of(items, prefix)) == number,
        within_s=WITHIN_S,
        what=f"{prefix} bound",
    )


def wait_refused(pods: Following, prefix: str, fragment: str) -> None:
    """Until the condition of a pod with this prefix says this."""

    def says(items: Mapping[str, dict[str, object]]) -> bool:
        named = [pod for pod in items.values() if str(pod["metadata"]["name"]).startswith(prefix)]  # type: ignore[index]
        return any(fragment in " ".join(refusal(pod)) for pod in named)

    pods.wait_for(says, within_s=WITHIN_S, what=f"{prefix} says {fragment!r}")


def never(condition: Callable[[], bool], for_s: float) -> None:
    """The condition stays false for so long."""
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        assert not condition()
        time.sleep(0.1)


def test_scheduling_is_paused_and_resumed(plane: ControlPlane, api: Api) -> None:
    """Nothing is bound meanwhile, after a change of the leader either; then everything that waits
    is.
    """
    make.create_all(api, [make.node("n0")])
    with Daemon(plane, extra_args=ELECTS) as daemon, Following(api, PODS) as pods:
        wait_logged(daemon, "leading", WITHIN_S)
        ordered(plane, "gangsched.dev/pause='INC-1 rack 7'")
        wait_logged(daemon, "Scheduling is paused: INC-1 rack 7 (gangsched.dev/pause).")
        make.create_all(api, make.gang("g", members=2, gpus=1))
        assert daemon.metrics()["gangsched_paused"] == 1
        never(lambda: bool(nodes_of(pods.objects(), "g")), 2.0)
    with Daemon(plane, extra_args=ELECTS) as daemon, Following(api, PODS) as pods:
        wait_logged(daemon, "leading", WITHIN_S)
        never(lambda: bool(nodes_of(pods.objects(), "g")), 2.0)
        ordered(plane, "gangsched.dev/pause-")
        wait_logged(daemon, "Scheduling is resumed.")
        wait_bound(pods, "g", 2)


def test_a_gang_is_set_aside_and_preemption_is_paused(plane: ControlPlane, api: Api) -> None:
    """Only the named gang waits, and says why; nobody is evicted until the order is withdrawn."""
    make.create_all(api, [make.node("n0", gpus=8)])
    with Daemon(plane, extra_args=ELECTS) as daemon, Following(api, PODS) as pods:
        wait_logged(daemon, "leading", WITHIN_S)
        ordered(plane, "gangsched.dev/set-aside=default/bad gangsched.dev/pause-preemption=INC-2")
        wait_logged(daemon, "Preemption is paused: INC-2")
        make.create_all(api, make.gang("bad", members=2, gpus=1))
        at_once = {"terminationGracePeriodSeconds": 0}
        make.create_all(api, make.gang("low", members=2, gpus=4, spec=at_once))
        wait_bound(pods, "low", 2)
        wait_refused(pods, "bad", "gang default/bad is set aside by an administrator")

        api.post(
            CLASSES,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "urgent"},
                "value": 1_000,
            },
        )
        make.create_all(
            api,
            make.gang("high", members=2, gpus=4, spec={"priorityClassName": "urgent", **at_once}),
        )
        wait_refused(pods, "high", "needs 2 pods")
        never(lambda: len(nodes_of(pods.objects(), "low")) < 2, 2.0)

        ordered(plane, "gangsched.dev/pause-preemption-")
        pods.wait_for(
            lambda items: len(nodes_of(items, "low")) == 0,
            within_s=WITHIN_S,
            what="the eviction of low",
        )
        wait_bound(pods, "high", 2)
        for pod in api.list(PODS).items:
            if pod["metadata"]["name"].startswith("high"):
                api.delete(f"{PODS_HERE}/{pod['metadata']['name']}")
        ordered(plane, "gangsched.dev/set-aside-")
        wait_logged(daemon, "Gang default/bad is no longer set aside.")
        wait_bound(pods, "bad", 2)


def test_the_configuration_is_read_again_on_sighup(plane: ControlPlane, tmp_path: Path) -> None:
    """The log has what takes effect, what needs a restart, and nothing happens to the process."""
    file = tmp_path / "config.yaml"
    file.write_text("")
    tmp_path.chmod(0o755)
    with Daemon(plane, extra_args=("--config", str(file))) as daemon:
        file.write_text("log_level: debug\nreservations: 3\n")
        os.kill(daemon.pid, signal.SIGHUP)
        wait_logged(daemon, "Reloaded: log_level is debug.")
        wait_logged(daemon, "Changed settings take effect after a restart: reservations.")
        file.write_text("log_level: nonsense\n")
        wait_logged(daemon, "The configuration is not reloaded: log_level is", 2 * AT_ONCE_S)


def test_a_definition_that_is_deleted_and_comes_back_is_logged(
    plane: ControlPlane, api: Api
) -> None:
    """Its gangs wait meanwhile, and the log says when its PodGroups are followed again."""
    definition = api.get(f"{DEFINITIONS}/podgroups.scheduling.x-k8s.io")
    with Daemon(plane) as daemon:
        remove_definition(api, "podgroups.scheduling.x-k8s.io")
        try:
            wait_logged(
                daemon, "no longer serves PodGroups of scheduling.x-k8s.io: apply crds/ again", 60.0
            )
        finally:
            metadata = {
                "name": definition["metadata"]["name"],
                "annotations": definition["metadata"]["annotations"],
            }
            api.post(DEFINITIONS, {**definition, "metadata": metadata, "status": {}})
        wait_logged(daemon, "Following PodGroups of scheduling.x-k8s.io again.", 60.0)
