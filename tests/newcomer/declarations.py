"""Gangs that are declared in a wrong or a surprising way."""

from __future__ import annotations

from control_plane import objects as make
from control_plane.api import Object

from tests.newcomer.case import (
    GANG,
    Case,
    accepted,
    annotate,
    create,
    delete,
    gang,
    koordinator,
    nodes,
    patch,
    pods,
    refused,
    replace_pods,
)

GATE = {"schedulingGates": [{"name": "example.com/budget"}]}
NO_GATE: Object = {"spec": {"schedulingGates": []}}
QUOTA = {
    "metadata": {"name": "two-pods"},
    "spec": {"hard": {"pods": "2"}},
    "apiVersion": "v1",
    "kind": "ResourceQuota",
}
PAIR = '["default/training", "default/actors"]'
FOREIGN = '["default/training", "team-b/actors"]'

CASES = (
    Case(
        slug="typo-in-the-schedulers-name",
        nodes=nodes(2),
        applied=gang(2, scheduler_name="gangshed"),
        mend=[replace_pods(*pods(2))],
        starts=2,
    ),
    Case(
        slug="one-member-of-another-scheduler",
        nodes=nodes(4),
        applied=[*gang(3, needs=4), *pods(1, first=3, scheduler_name="default-scheduler")],
        mend=[replace_pods(*pods(1, first=3))],
        starts=4,
    ),
    Case(
        slug="typo-in-the-groups-name",
        nodes=nodes(4),
        applied=[make.pod_group(GANG, min_member=4), *pods(4, group="trainin")],
        mend=[replace_pods(*pods(4))],
        starts=4,
    ),
    Case(
        slug="no-pod-group",
        nodes=nodes(4),
        applied=pods(4),
        mend=[create(make.pod_group(GANG, min_member=4))],
        starts=4,
    ),
    Case(
        slug="pod-group-in-another-namespace",
        nodes=nodes(2),
        applied=[make.pod_group(GANG, namespace="team-b", min_member=2), *pods(2)],
        mend=[create(make.pod_group(GANG, min_member=2))],
        starts=2,
    ),
    Case(
        slug="pod-group-deleted",
        nodes=nodes(1),
        applied=gang(2),
        deeds=[delete("PodGroup", GANG)],
        mend=[create(make.pod_group(GANG, min_member=1))],
        starts=1,
    ),
    Case(
        slug="min-above-replicas",
        nodes=nodes(4),
        applied=gang(3, needs=4),
        mend=[patch("PodGroup", GANG, {"spec": {"minMember": 3}})],
        starts=3,
    ),
    Case(
        slug="quota-refuses-pods",
        nodes=nodes(4),
        applied=gang(2, needs=4),
        deeds=[create(QUOTA), refused(pods(1, first=2)[0], "exceeded quota")],
        mend=[
            delete("ResourceQuota", "two-pods"),
            accepted(pods(1, first=2)[0]),
            create(*pods(2, first=2)),
        ],
        starts=4,
    ),
    Case(
        slug="gated-member",
        nodes=nodes(4),
        applied=[*gang(3, needs=4), *pods(1, first=3, spec=GATE)],
        mend=[patch("Pod", "training-3", NO_GATE)],
        starts=4,
    ),
    Case(
        slug="all-members-gated",
        nodes=nodes(2),
        applied=gang(2, spec=GATE),
        mend=[patch("Pod", "training-0", NO_GATE), patch("Pod", "training-1", NO_GATE)],
        starts=2,
    ),
    Case(
        slug="member-deleted-before-the-start",
        nodes=nodes(3),
        applied=gang(4),
        deeds=[delete("Pod", "training-3")],
        mend=[patch("PodGroup", GANG, {"spec": {"minMember": 3}})],
        starts=3,
    ),
    Case(
        slug="min-zero",
        nodes=nodes(1),
        applied=gang(2, needs=0),
        mend=[create(make.node("gpu-2"))],
        starts=2,
    ),
    Case(
        slug="min-negative",
        nodes=nodes(2),
        applied=pods(2, group="", annotations=koordinator(name=GANG, min_available="-2")),
        mend=[annotate("Pod", "training-0", "training-1", min_available="2")],
        starts=2,
    ),
    Case(
        slug="min-is-no-number",
        nodes=nodes(2),
        applied=[
            make.pod_group(GANG, min_member=2),
            *pods(2, annotations=koordinator(min_available="two")),
        ],
        group_first=True,
        mend=[annotate("Pod", "training-0", "training-1", min_available="2")],
        starts=2,
    ),
    Case(
        slug="no-min-anywhere",
        nodes=nodes(2),
        applied=pods(2, group="", annotations={"scheduling.k8s.io/group-name": GANG}),
        mend=[create(make.pod_group(GANG, min_member=2))],
        starts=2,
    ),
    Case(
        slug="pods-override-the-pod-group",
        nodes=nodes(3),
        applied=[
            make.pod_group(GANG, min_member=3),
            *pods(3, annotations=koordinator(min_available="5")),
        ],
        mend=[annotate("Pod", "training-0", "training-1", "training-2", min_available=None)],
        starts=3,
    ),
    Case(
        slug="members-with-different-min",
        nodes=nodes(3),
        applied=[
            *pods(1, group="", annotations=koordinator(name=GANG, min_available="3")),
            *pods(2, first=1, group="", annotations=koordinator(name=GANG, min_available="4")),
        ],
    ),
    Case(
        slug="two-marks",
        nodes=nodes(2),
        applied=[
            make.pod_group(GANG, min_member=3),
            *pods(2, annotations=koordinator(name="other", total_number="2")),
        ],
        mend=[
            annotate("Pod", "training-0", "training-1", name=None, total_number=None),
            patch("PodGroup", GANG, {"spec": {"minMember": 2}}),
        ],
        starts=2,
    ),
    Case(
        slug="mode-is-no-mode",
        nodes=nodes(2),
        applied=gang(2, annotations=koordinator(mode="nonstrict")),
        group_first=True,
        mend=[annotate("Pod", "training-0", "training-1", mode=None)],
        starts=2,
    ),
    Case(
        slug="waiting-time-malformed",
        nodes=nodes(2),
        applied=[
            make.pod_group(GANG, min_member=2, annotations=koordinator(waiting_time="ten minutes")),
            *pods(2),
        ],
        mend=[annotate("PodGroup", GANG, waiting_time="10m")],
        starts=2,
    ),
    Case(
        slug="timed-out",
        nodes=nodes(2),
        applied=gang(2, annotations=koordinator(timeout="true")),
        mend=[annotate("Pod", "training-0", "training-1", timeout=None)],
        starts=2,
    ),
    Case(
        slug="groups-are-no-list",
        nodes=nodes(2),
        applied=gang(2, annotations=koordinator(groups="training,actors")),
        group_first=True,
        mend=[annotate("Pod", "training-0", "training-1", groups=None)],
        starts=2,
    ),
    Case(
        slug="group-that-another-gang-does-not-list",
        nodes=nodes(2),
        applied=[
            *gang(2, annotations=koordinator(groups=PAIR)),
            make.pod_group("actors", min_member=2),
        ],
        group_first=True,
        mend=[annotate("Pod", "training-0", "training-1", groups=None)],
        starts=2,
    ),
    Case(
        slug="group-with-a-gang-of-another-namespace",
        nodes=nodes(2),
        applied=gang(2, annotations=koordinator(groups=FOREIGN)),
        group_first=True,
        mend=[annotate("Pod", "training-0", "training-1", groups=None)],
        starts=2,
    ),
)
