"""One table of all label and annotation keys of gangs, for each version of the conventions
(semantics I2, I3).

Invariant: no other module contains key names. An identity key, which names the gang, is read only
in the form that its convention defines (label or annotation). A value key is read in both forms,
and the annotation wins, since labels cannot hold every value. `gang_spec` defines the meaning of
values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from gangsched.model.owners import OwnerGangs

GangMetadata: TypeAlias = tuple[tuple[str, str], ...]

X_K8S: Final = "scheduling.x-k8s.io"
SIGS: Final = "scheduling.sigs.k8s.io"
STORES_STARTS: Final = frozenset({X_K8S, SIGS})
"""The API groups whose PodGroups have a status of ours, with room for the last start (I6)."""
NATIVE: Final = "scheduling.k8s.io"
COMPOSITE: Final = f"compositepodgroups.{NATIVE}"
"""The second kind of this API group, under a name of its own."""
VOLCANO: Final = "scheduling.volcano.sh"
GROVE: Final = "scheduler.grove.io"
"""API groups with a PodGroup: scheduler-plugins today, Koordinator and older scheduler-plugins,
Kubernetes >= 1.36, Volcano; and Grove's with a PodGang. `api.dialects` reads them."""

K: Final = "gang.scheduling.koordinator.sh/"
_LEGACY: Final = "pod-group.scheduling.sigs.k8s.io"

NAME: Final = K + "name"
TIMEOUT: Final = K + "timeout"
"""Written by us to the unbound pods of a timed-out gang (semantics T2), "true"; not part of
`gang_metadata`.
"""
SUSPECTS: Final = "gangsched.dev/suspects"
"""On the Lease: groups at which a process ended (I10)."""
PERMITTED: Final = "gangsched.dev/permitted"
"""Written by us with the bind of every member of a gang: the stamp of its Permit (semantics B4)."""

PAUSE: Final = "gangsched.dev/pause"
PAUSE_PREEMPTION: Final = "gangsched.dev/pause-preemption"
SET_ASIDE: Final = "gangsched.dev/set-aside"
NO_RESERVATION: Final = "gangsched.dev/no-reservation"
"""Orders of an administrator: annotations of the leader election Lease, whose values
`api.admin_orders` reads.
"""

KUEUE_NAME: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
"""Kueue's plain pod groups need all members: the total is the minimum of a gang that `KUEUE_NAME`
names.
"""

VOLCANO_GROUP: Final = VOLCANO + "/group-name"
KUBE_BATCH_GROUP: Final = "scheduling.k8s.io/group-name"
VOLCANO_TASK: Final = "volcano.sh/task-spec"
"""Annotations of pods: the PodGroup, also by an older name, and, which may be a label, the task
that the pod is of.
"""
GROVE_GANG: Final = "grove.io/podgang"
GROVE_CLIQUE: Final = "grove.io/podclique"
"""Labels of pods: the PodGang, and the one of its podgroups that the pod is a member of. Without
the first the second marks no gang."""
OWNER_GANG: Final = "gangsched.dev/gang"
OWNER: Final = "owner"
NO_OWNER: Final = "none"
"""The key, on pods and as a label of Namespaces, and its values: the pods of one owner are a gang
(O1), or the pod is in no such gang.
"""
_LWS: Final = "leaderworkerset.sigs.k8s.io/"
LWS_NAME: Final = _LWS + "name"
LWS_GROUP: Final = (LWS_NAME, _LWS + "group-index", _LWS + "template-revision-hash")
"""Labels whose values, joined by hyphens, name one group of a LeaderWorkerSet, as its gang provider
does. The first one stands for all of them in `gang_metadata`."""
LWS_SIZE: Final = _LWS + "size"
"""Annotation: pods of one group, the minimum of the gang that the group is."""
LEADER_FIRST: Final = ("gangsched.dev/leader-first",)
LWS_EXCLUSIVE: Final = (_LWS + "exclusive-topology",)
"""Annotations of pods whose owner creates the other members once a first one has a node; the second
one is the label of nodes of which one domain holds the group."""

LWS_SUBGROUP_EXCLUSIVE: Final = _LWS + "subgroup-exclusive-topology"
"""Annotation: the label of nodes of which each subgroup has a domain of its own."""

LONGEST_VALUE: Final = 4096
"""In bytes. A longer text is a bad value; of it only so much is kept as shows that
(semantics I3).
"""
SHORT: Final = 128
"""In characters; longer texts are too many bytes for a cache of thousands."""


NUMBER: Final = re.compile(r"[0-9]{1,9}")
_ENDING: Final = re.compile(r"-([0-9]{1,9})$")


class GangKey(NamedTuple):
    """A key that names a pod's gang.

    `needs_pod_group`: a PodGroup of that name must exist (I2); it is looked up in `api_groups`, in
    this order. An `opt_in` key counts only on pods that also have `OWNER_GANG` and have no native
    PodGroup.
    """

    key: str
    label: bool
    needs_pod_group: bool
    api_groups: tuple[str, ...] = (X_K8S, SIGS)
    opt_in: bool = False


IDENTITIES: Final = (
    GangKey("scheduling.x-k8s.io/pod-group", label=True, needs_pod_group=True),
    GangKey(_LEGACY, label=True, needs_pod_group=True),
    GangKey(_LEGACY + "/name", label=True, needs_pod_group=False),
    GangKey(NAME, label=False, needs_pod_group=False),
    # Volcano's oldest key, which LeaderWorkerSet still writes in addition to a PodGroup of Volcano.
    GangKey(
        KUBE_BATCH_GROUP,
        label=False,
        needs_pod_group=False,
        api_groups=(X_K8S, SIGS, VOLCANO),
    ),
    GangKey("pod-group/name", label=True, needs_pod_group=False),
    GangKey(KUEUE_NAME, label=True, needs_pod_group=False),
    GangKey(VOLCANO_GROUP, label=False, needs_pod_group=True, api_groups=(VOLCANO,)),
    GangKey(GROVE_CLIQUE, label=True, needs_pod_group=True, api_groups=(GROVE,)),
    GangKey(LWS_NAME, label=True, needs_pod_group=False, api_groups=(), opt_in=True),
)
"""In order of precedence: the first one present and not empty names the gang."""

MIN: Final = (
    K + "min-available",
    _LEGACY + "/min-available",
    "scheduling.k8s.io/group-min-member",
    "scheduling.k8s.io/group-pod-num",
    "pod-group/min-available",
    "kai.scheduler/batch-min-member",
    KUEUE_TOTAL,
    LWS_SIZE,  # of pods of a gang that is one group
)
TOTAL: Final = (K + "total-number",)
MODE: Final = (K + "mode",)
WAIT_TIME: Final = (K + "waiting-time",)
GROUPS: Final = (K + "groups",)
PARENT: Final = ("gangsched.dev/parent",)
MIN_CHILDREN: Final = ("gangsched.dev/min-children",)
"""Our own: the tree that a gang is a child of, and how many of its children start together (I9)."""
DISRUPTION: Final = ("gangsched.dev/disruption",)
"""Our own: which members of a gang, or gangs of a tree, are evicted together (V6)."""
KEEP_ROOM: Final = ("gangsched.dev/keep-room",)
"""Our own: members that come after others run get their room with the others (B8)."""
AVOID_BAD_NODES: Final = ("gangsched.dev/avoid-bad-nodes",)
PROVISIONING_CLASS: Final = ("gangsched.dev/provisioning-class",)
"""Our own: after how many deaths of members on a node the gang avoids the node (L8)."""
MATCH_POLICY: Final = (K + "match-policy", _LEGACY + "/match-policy")

ALLOW_SHARED_GPUS: Final = ("gangsched.dev/allow-shared-gpus",)
GPU_PRODUCT: Final = ("gangsched.dev/gpu-product",)
TOPOLOGY: Final = ("gangsched.dev/topology",)
PREFERRED_TOPOLOGY: Final = (
    "gangsched.dev/preferred-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
)
SLICES: Final = (
    "gangsched.dev/slices",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)
"""Our own: what a gang asks of the GPU policy (docs/placement.md); the second ones are Kueue's, on
pods.
"""
KUEUE_TOPOLOGY: Final = ("kueue.x-k8s.io/podset-required-topology",)
"""Holds in addition to `TOPOLOGY`: what two projects require of one gang, both require."""
KUEUE_SLICE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
"""One layer of slices in two annotations; kept as the list of layers that says the same."""
KUEUE_ADMITTED: Final = ("kueue.x-k8s.io/podset", "kueue.x-k8s.io/tas")
"""Labels of pods that Kueue has admitted."""

JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
"""The label of a JobSet's pods with its name."""
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
"""The label of a JobSet's Jobs with the name of their template."""
JOBSET_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
"""JobSet creates the other pods of a Job only after its first one has a node, unless nodes are
labelled beforehand.
"""

INDEXES: Final = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
    "grove.io/podclique-pod-index",
    "kueue.x-k8s.io/pod-group-pod-index",
    K + "network-topology-index",
)
"""Labels or annotations that number the members of a gang, in order of precedence
(semantics I3).
"""
_INDEX_KEYS: Final = frozenset(INDEXES)

PREEMPTION_DELAY: Final = ("gangsched.dev/preemption-delay", "kai.scheduler/preemption-delay")
"""How long a group gives an autoscaler before it preempts (semantics V28); plain pods may set it as
well.
"""

EXPECTED_RUNTIME: Final = "gangsched.dev/expected-runtime"
SLURM_TIME_LIMIT: Final = "slurmjob.slinky.slurm.net/timelimit"
KUEUE_MAX_EXEC_TIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""How long a pod is expected to run (`api.run_time`, semantics H1); each member's own, so they
declare no gang.
"""
DEADLINE: Final = "activeDeadlineSeconds"
"""The field of a pod's spec that the kubelet enforces, beside the keys in `run_time_metadata`."""

VALUE_KEYS: Final = frozenset(
    (
        *MIN[:-1],
        *TOTAL,
        *MODE,
        *WAIT_TIME,
        *GROUPS,
        *PARENT,
        *MIN_CHILDREN,
        *DISRUPTION,
        *KEEP_ROOM,
        *AVOID_BAD_NODES,
        *PROVISIONING_CLASS,
        *MATCH_POLICY,
        *ALLOW_SHARED_GPUS,
        *GPU_PRODUCT,
        *TOPOLOGY,
        *PREFERRED_TOPOLOGY,
        *KUEUE_TOPOLOGY,
        *SLICES,
        *PREEMPTION_DELAY,
    )
)
NAMES_BEFORE_KUEUES: Final = tuple(
    each.key for each in takewhile(lambda each: each.key != KUEUE_NAME, IDENTITIES)
)
_POD_GROUP_KEYS: Final = frozenset(key for key in VALUE_KEYS if not key.startswith("kueue.")) | {
    EXPECTED_RUNTIME
}
RUN_TIME_KEYS: Final = frozenset({EXPECTED_RUNTIME, SLURM_TIME_LIMIT, KUEUE_MAX_EXEC_TIME})
_RUN_TIME_KEYS_IN_ORDER: Final = tuple(sorted(RUN_TIME_KEYS))
KUEUE_SLICE_KEYS: Final = frozenset((KUEUE_SLICE_TOPOLOGY, KUEUE_SLICE_SIZE))
OF_LWS: Final = frozenset((LWS_SIZE, LWS_SUBGROUP_EXCLUSIVE, *LEADER_FIRST, *LWS_EXCLUSIVE))
GANG_LABELS: Final = VALUE_KEYS | {
    OWNER_GANG,
    *(gang_key.key for gang_key in IDENTITIES if gang_key.label and not gang_key.opt_in),
}
_JOBSET: Final = frozenset((JOBSET_EXCLUSIVE, JOBSET_NODE_SELECTOR))
GANG_ANNOTATIONS: Final = (
    VALUE_KEYS
    | KUEUE_SLICE_KEYS
    | _JOBSET
    | {OWNER_GANG, *(gang_key.key for gang_key in IDENTITIES if not gang_key.label)}
)


def asks_for_owner(stated: Mapping[str, str], owner_gangs: OwnerGangs) -> bool:
    """Whether a pod with these keys asks to be in the gang of its owner (O1)."""
    if owner_gangs is OwnerGangs.OFF:
        return False

    own = stated.get(OWNER_GANG)
    return own == OWNER or (owner_gangs is OwnerGangs.ALL and own != NO_OWNER)


def run_time_metadata(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    deadline_s: int | None,
) -> GangMetadata:
    """The run times that the pod declares, as (key, value) pairs: the deadline first, then the
    annotations and labels sorted by key. Equal results are the same object.

    An annotation overrides a label of the same key. A text that is too long is cut, but stays
    invalid.
    """
    stated = [] if deadline_s is None else [(DEADLINE, str(deadline_s))]
    for key in _RUN_TIME_KEYS_IN_ORDER:
        text = annotations.get(key, labels.get(key))
        if text is not None:
            # Cut to one character more than is valid.
            stated.append((key, text[: SHORT + 1]))

    return interned(tuple(stated))


def pod_group_metadata(annotations: Mapping[str, str]) -> GangMetadata:
    """Annotations of a PodGroup that declare values (I3), sorted by key. Its labels and identity
    keys are not read.
    """
    stated = annotations.items()
    return tuple(
        sorted((key, text[: LONGEST_VALUE + 1]) for key, text in stated if key in _POD_GROUP_KEYS)
    )


def member_index(labels: Mapping[str, str], annotations: Mapping[str, str], name: str) -> int:
    """Index of a member in its gang: from the first index key that it has, otherwise the number at
    the end of its name; -1 if there is neither.
    """
    if not (_INDEX_KEYS.isdisjoint(labels) and _INDEX_KEYS.isdisjoint(annotations)):
        for key in INDEXES:
            text = labels.get(key) or annotations.get(key)
            if text is not None and NUMBER.fullmatch(text):
                return int(text)

    ending = _ENDING.search(name)
    return int(ending[1]) if ending is not None else -1


def is_too_long(text: str) -> bool:
    """Whether a value is too long to be valid."""
    # A character has at most four bytes, so short texts need no encoding.
    return len(text) > LONGEST_VALUE // 4 and len(text.encode(errors="replace")) > LONGEST_VALUE


def is_timed_out(annotations: Mapping[str, str]) -> bool:
    """Whether the pod has the timeout annotation, which keeps its gang from being scheduled
    (semantics P2, T3).
    """
    return annotations.get(TIMEOUT) == "true"


@lru_cache(maxsize=1_024)
def interned(gang_metadata: GangMetadata) -> GangMetadata:
    """The first tuple seen that equals `gang_metadata`."""
    return gang_metadata
