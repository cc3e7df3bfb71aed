"""Gangs that find no room."""

from __future__ import annotations

from typing import Any

from control_plane import objects as make

from tests.newcomer.case import (
    GANG,
    RACK,
    Case,
    create,
    delete,
    gang,
    in_racks,
    nodes,
    on,
    patch,
    pods,
    replace_pods,
)

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TOLERATION = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": GANG}},
                }
            ]
        }
    }
}
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
CORDON = {"spec": {"unschedulable": True}}
UNCORDON = {"spec": {"unschedulable": None}}


def asking(resource: str, amount: str) -> dict[str, Any]:
    """The spec of a pod that asks for this and nothing else."""
    return {
        "containers": [
            {"name": "main", "image": make.IMAGE, "resources": {"limits": {resource: amount}}}
        ]
    }


CASES = (
    Case(
        slug="one-gpu-short",
        nodes=nodes(4),
        applied=[on("gpu-4", "notebook", 1), *gang(4)],
        mend=[delete("Pod", "notebook")],
        starts=4,
    ),
    Case(
        slug="fragmented",
        nodes=nodes(4),
        applied=[
            *(on(f"gpu-{number}", f"notebook-{number}", 4) for number in (1, 2, 3, 4)),
            *gang(2),
        ],
        mend=[delete("Pod", "notebook-1", "notebook-3")],
        starts=2,
    ),
    Case(
        slug="member-larger-than-any-node",
        nodes=nodes(2),
        applied=gang(2, gpus=16),
        mend=[replace_pods(*pods(2))],
        starts=2,
    ),
    Case(
        slug="more-members-than-nodes",
        nodes=nodes(2),
        applied=gang(3),
        mend=[create(make.node("gpu-3"))],
        starts=3,
    ),
    Case(
        slug="another-resource-runs-out",
        nodes=nodes(2, cpu="32"),
        applied=gang(4, gpus=4, cpu="20"),
        mend=[replace_pods(*pods(4, gpus=4, cpu="16"))],
        starts=4,
    ),
    Case(
        slug="wrong-resource-name",
        nodes=nodes(2),
        applied=gang(2, gpus=0, spec=asking("nvidia.com/gpus", "8")),
        mend=[replace_pods(*pods(2))],
        starts=2,
    ),
    Case(
        slug="taint-without-toleration",
        nodes=nodes(2, taints=[TAINT]),
        applied=gang(2),
        mend=[replace_pods(*pods(2, spec=TOLERATION))],
        starts=2,
    ),
    Case(
        slug="gpu-nodes-are-tainted",
        nodes=[*nodes(2, taints=[TAINT]), make.node("cpu-1", gpus=0)],
        applied=gang(2),
        mend=[replace_pods(*pods(2, spec=TOLERATION))],
        starts=2,
    ),
    Case(
        slug="node-selector-matches-nothing",
        nodes=nodes(2, labels={"pool": "a100"}),
        applied=gang(2, node_selector={"pool": "h100"}),
        mend=[
            patch("Node", f"gpu-{number}", {"metadata": {"labels": {"pool": "h100"}}})
            for number in (1, 2)
        ],
        starts=2,
    ),
    Case(
        slug="cordoned-node",
        nodes=[*nodes(1), make.node("gpu-2", unschedulable=True)],
        applied=gang(2),
        mend=[patch("Node", "gpu-2", UNCORDON)],
        starts=2,
    ),
    Case(slug="no-nodes", nodes=[], applied=gang(2), mend=[create(*nodes(2))], starts=2),
    Case(
        slug="members-that-must-be-apart",
        nodes=nodes(2),
        applied=gang(3, gpus=1, labels={"app": GANG}, spec=APART),
        mend=[create(make.node("gpu-3"))],
        starts=3,
    ),
    Case(
        slug="no-rack-is-large-enough",
        nodes=in_racks("a", "b"),
        applied=gang(2, annotations=RACK),
        mend=[patch("Node", "gpu-2", {"metadata": {"labels": {"example.com/rack": "a"}}})],
        starts=2,
    ),
    Case(
        slug="min-resources-never-free",
        nodes=nodes(1),
        applied=[
            make.pod_group(GANG, min_member=2, min_resources={"nvidia.com/gpu": "16"}),
            *pods(2, gpus=4),
        ],
        mend=[patch("PodGroup", GANG, {"spec": {"minResources": None}})],
        starts=2,
    ),
    Case(
        slug="one-member-of-lower-priority",
        nodes=nodes(1),
        applied=[make.pod("earlier", gpus=8), make.pod_group(GANG, min_member=2)],
        starts_first=1,
        deeds=[
            create(*pods(1, gpus=4, spec={"priorityClassName": "high"}), *pods(1, first=1, gpus=4))
        ],
        mend=[delete("Pod", "earlier")],
        starts=2,
    ),
)
