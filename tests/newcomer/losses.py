"""What befalls gangs that have started."""

from __future__ import annotations

from tests.newcomer.case import (
    RACK,
    Case,
    create,
    delete,
    gang,
    in_racks,
    nodes,
    patch,
    pods,
    replace_pods,
)

PULLING = {
    "phase": "Pending",
    "containerStatuses": [
        {
            "name": "main",
            "image": "registry.example.com/trian:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
        }
    ],
}
RUNNING = {"phase": "Running"}
REJECTED = {
    "phase": "Failed",
    "reason": "OutOfnvidia.com/gpu",
    "message": (
        "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 8,"
        " capacity: 8"
    ),
}

CASES = (
    Case(
        slug="image-cannot-be-pulled",
        nodes=nodes(2),
        applied=gang(2),
        starts_first=2,
        deeds=[
            patch("Pod", "training-0", RUNNING, status=True),
            patch("Pod", "training-1", PULLING, status=True),
        ],
    ),
    Case(
        slug="kubelet-rejects-a-member",
        nodes=nodes(3),
        applied=gang(2),
        starts_first=2,
        deeds=[
            patch("Pod", "training-0", RUNNING, status=True),
            patch("Pod", "training-1", REJECTED, status=True),
        ],
        mend=[delete("Pod", "training-1"), create(*pods(1, first=1))],
        starts=2,
    ),
    Case(
        slug="member-deleted-after-the-start",
        nodes=nodes(2),
        applied=gang(2),
        starts_first=2,
        deeds=[delete("Pod", "training-1")],
        mend=[create(*pods(1, first=1))],
        starts=2,
    ),
    Case(
        slug="home-full",
        nodes=in_racks("a", "a", "b"),
        applied=gang(2, annotations=RACK),
        starts_first=2,
        deeds=[delete("Node", "gpu-2"), replace_pods(*pods(1, first=1, annotations=RACK))],
        mend=[create(in_racks("a", "a", "b")[1])],
        starts=2,
    ),
    Case(
        slug="node-lost",
        nodes=nodes(2),
        applied=gang(2),
        starts_first=2,
        deeds=[delete("Node", "gpu-2"), replace_pods(*pods(1, first=1))],
        mend=[create(nodes(2)[1])],
        starts=2,
    ),
)
