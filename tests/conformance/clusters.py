"""The two control planes that the specs are run on: alike, but for the scheduler that serves
`default-scheduler`.

Invariant: kwok plays four nodes in two zones, which have what the specs ask of a node: an address,
a host name, a zone and ephemeral storage. Native gangs are switched on in every component.
gangsched has the rights of its manifests.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from control_plane import ControlPlane, components
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon

from tests.conformance.results import Outcome, read_report

RELEASE = "1.37"
PROGRAM = components.CACHE / RELEASE / "bin" / "e2e"
OURS, THEIRS = "gangsched", "kube-scheduler"
SIDES = (OURS, THEIRS)
DEFAULT_SCHEDULER = "default-scheduler"
ZONES = ("zone-a", "zone-b")
NODES_A_ZONE = 2
#: Of gangs: the API that the specs use, and what switches it on.
GATES = {"GenericWorkload": True}
APIS = ("scheduling.k8s.io/v1beta1=true",)
STAGES = Path(__file__).with_name("stages.yaml")
READY_WITHIN_S = 120.0


def nodes() -> list[Object]:
    """The nodes of the cluster."""
    made = []
    for number in range(len(ZONES) * NODES_A_ZONE):
        labels = {
            "topology.kubernetes.io/zone": ZONES[number % len(ZONES)],
            "topology.kubernetes.io/region": "r",
        }
        node = make.node(f"node-{number}", cpu="8", memory="32Gi", gpus=0, labels=labels)
        for amounts in ("allocatable", "capacity"):
            node["status"][amounts] = {**node["status"][amounts], "ephemeral-storage": "100Gi"}
        node["status"]["addresses"] = [{"type": "InternalIP", "address": f"10.1.0.{number + 1}"}]
        made.append(node)
    return made


def run_system_pods(api: Api) -> None:
    """Give every node what the specs look for on each, for up to a minute: a pod with these words
    in its name.

    They are bound, not created with a node: the specs want the condition PodScheduled on every
    bound pod.
    """
    system, spec = "kube-system", {"priorityClassName": "system-node-critical"}
    for number, node in enumerate(nodes()):
        name = f"kube-proxy-fluentd-elasticsearch-node-problem-detector-{number}"
        # No scheduler has this name, or the one that the specs are run with would bind them.
        make.create_all(
            api, [make.pod(name, system, cpu="0", memory="0", scheduler_name="none", spec=spec)]
        )
        api.bind(system, name, node["metadata"]["name"])


@contextmanager
def cluster(side: str, workdir: Path | None = None) -> Iterator[ControlPlane]:
    """A cluster whose pods one of the two schedules. Raises ControlPlaneError for an
    unsound state.
    """
    with ControlPlane(
        workdir,
        release=RELEASE,
        kcm=True,
        kwok=STAGES,
        scheduler=side == THEIRS,
        feature_gates=GATES,
        runtime_config=APIS,
    ) as plane:
        api = Api.of(plane)
        try:
            if side == OURS:
                apply_manifests(api, scheduler_names=[DEFAULT_SCHEDULER])
            make.create_all(api, nodes())
            run_system_pods(api)
        finally:
            api.close()
        if side == THEIRS:
            yield plane
            return
        with Daemon(plane, scheduler_names=[DEFAULT_SCHEDULER], ready_timeout_s=READY_WITHIN_S):
            yield plane


def run_specs(plane: ControlPlane, focus: str, report: Path, log: Path) -> dict[str, Outcome]:
    """Run the specs whose text matches; failures are in the outcomes. Raises OSError if the suite
    could not run.
    """
    report.unlink(missing_ok=True)
    argv: Sequence[str] = [
        str(PROGRAM),
        f"--kubeconfig={plane.kubeconfig}",
        "--provider=local",
        f"--num-nodes={len(ZONES) * NODES_A_ZONE}",
        f"--ginkgo.focus={focus}",
        f"--ginkgo.json-report={report}",
        "--ginkgo.seed=1",  # the order of the specs
        "--ginkgo.timeout=2h",
        "--ginkgo.no-color",
        "--ginkgo.v",
    ]
    with log.open("w") as out:
        done = subprocess.run(
            argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
        )
    if not report.exists():
        raise OSError(f"The suite ended with {done.returncode} and without a report; see {log}.")
    return read_report(report.read_text())
