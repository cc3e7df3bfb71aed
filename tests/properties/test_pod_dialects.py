"""Random labels and annotations of pods of LeaderWorkerSets, JobSets and Kueue: each is read whole
(A1, A2, A5).
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from gangsched.api import keys
from gangsched.api.dialects.kueue import KUEUE_PLACES
from gangsched.api.gang_identity import gang_id
from gangsched.api.gang_spec import GangDefaults, GangSpec, gang_spec, preemption_delay
from gangsched.api.owner_declarations import owner_problem
from gangsched.api.pod_metadata import pod_gang_metadata
from gangsched.api.run_time import run_time
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.owners import OwnerGangs
from tests.builders import pod, pod_group, shape
from tests.sizes import of_size

OBJECTS = of_size(1_500, 10_000)
SEED = 34
RACK, HOST = "rack", "kubernetes.io/hostname"
LONG, NOT_ASCII = "x" * 5_000, "\u00e9\u0000\ud800"
ANYTHING = [
    "",
    " ",
    "0",
    "-1",
    "2",
    "3.5",
    "1e9",
    "99999999999",
    "null",
    "[]",
    "{}",
    '["ns/g"]',
    "true",
    LONG,
    NOT_ASCII,
]
LEVELS = [RACK, HOST, "a/b/c", "no label", "-rack"]

Keys = Mapping[str, list[str]]
#: By dialect: its labels, and its annotations, each with good values; a random value may be
#: anything.
LABELS: dict[str, Keys] = {
    "LeaderWorkerSet": {
        **{key: [value] for key, value in zip(keys.LWS_GROUP, ("serve", "0", "abc"), strict=True)},
        keys.OWNER_GANG: [keys.OWNER],
        "leaderworkerset.sigs.k8s.io/worker-index": ["0", "1"],
    },
    "JobSet": {
        "jobset.sigs.k8s.io/jobset-name": ["train"],
        "batch.kubernetes.io/job-completion-index": ["0", "1"],
    },
    "Kueue": {
        keys.KUEUE_NAME: ["g"],
        keys.KUEUE_ADMITTED[0]: ["main"],
        "kueue.x-k8s.io/pod-group-pod-index": ["0", "1"],
        keys.KUEUE_MAX_EXEC_TIME: ["60"],
    },
}
ANNOTATIONS: dict[str, Keys] = {
    "LeaderWorkerSet": {
        keys.LWS_SIZE: ["2", "3"],
        keys.LWS_EXCLUSIVE[0]: LEVELS,
        keys.LWS_SUBGROUP_EXCLUSIVE: LEVELS,
        keys.LEADER_FIRST[0]: ["true", "false"],
        keys.VOLCANO_GROUP: ["serve-0-abc", "serve-0-abc", "g"],
    },
    "JobSet": {
        keys.NAME: ["g"],
        keys.MIN[0]: ["1", "2", "3"],
        keys.JOBSET_EXCLUSIVE: LEVELS,
        keys.JOBSET_NODE_SELECTOR: ["true"],
    },
    "Kueue": {
        keys.KUEUE_TOTAL: ["1", "4"],
        keys.KUEUE_TOPOLOGY[0]: LEVELS,
        keys.PREFERRED_TOPOLOGY[1]: LEVELS,
        keys.KUEUE_SLICE_TOPOLOGY: LEVELS,
        keys.KUEUE_SLICE_SIZE: ["1", "2"],
        keys.SLICES[1]: ['[{"size": 2, "topology": "rack"}]'],
    },
}
BINDING = {
    keys.OWNER_GANG,
    *keys.OF_LWS,
    keys.JOBSET_EXCLUSIVE,
    keys.KUEUE_TOTAL,
    *keys.KUEUE_TOPOLOGY,
    keys.PREFERRED_TOPOLOGY[1],
    keys.SLICES[1],
}
"""Keys that ask for something."""


def drawn(rng: random.Random, known: Keys) -> dict[str, str]:
    """Some of these keys, mostly with a good value."""
    return {
        key: rng.choice(values if rng.random() < 0.7 else ANYTHING)
        for key, values in known.items()
        if rng.random() < 0.7
    }


def member(rng: random.Random, dialect: str, number: int, before: Pod | None) -> Pod:
    """A pod, mostly with the keys of the one before it."""
    if before is not None and rng.random() < 0.6:
        stated = before.gang_metadata, before.run_time_metadata, before.labels
    else:
        labels, annotations = drawn(rng, LABELS[dialect]), drawn(rng, ANNOTATIONS[dialect])
        if rng.random() < 0.1:
            labels, annotations = annotations, labels
        run_times = keys.run_time_metadata(labels, annotations, None)
        stated = pod_gang_metadata(labels, annotations), run_times, labels
    selector = (((RACK, "r1"),) if rng.random() < 0.2 else ()) if dialect == "Kueue" else ()
    return pod(
        f"p{number}",
        creation_s=rng.choice([100, 101]),
        gang_metadata=stated[0],
        run_time_metadata=stated[1],
        labels=stated[2],
        of=shape(1, node_selector=selector),
    )


def read(pods: list[Pod], group: PodGroup | None, rng: random.Random) -> GangSpec | None:
    """The specification of the gang of the first pod, the same in any order of its pods; None if it
    is in none.
    """
    ref = gang_id(pods[0])
    if ref is None:
        return None
    declared = list(
        {each.gang_metadata: each for each in reversed(pods) if gang_id(each) == ref}.values()
    )
    found = [
        gang_spec(
            ref.id, order, group, needs_pod_group=ref.needs_pod_group, defaults=GangDefaults()
        )
        for order in (declared, rng.sample(declared, len(declared)))
    ]
    assert found[0] == found[1]
    return found[0]


def unheard(key: str, spec: GangSpec, text: str) -> bool:
    """Whether the value that a gang states has no effect, though it may start and nobody
    is told.
    """
    is_refused = any((spec.waiting_for, spec.unsupported, spec.misplaced, spec.group_problem))
    if is_refused or any(key in problem.text for problem in spec.problems):
        return False
    constraints = spec.constraints
    if key in {*keys.LWS_EXCLUSIVE, *keys.KUEUE_TOPOLOGY}:
        return text not in constraints.topology
    if key == keys.PREFERRED_TOPOLOGY[1]:
        return constraints.preferred != text
    if key == keys.SLICES[1]:
        return not constraints.slices and text != "[]"
    if key in {keys.LWS_SIZE, keys.KUEUE_TOTAL}:
        return spec.min_member != int(text)
    if key == keys.LEADER_FIRST[0]:
        return (text == "true") and not spec.first and (spec.min_member or 0) > 1
    # The others need nothing of a gang: subgroups without members to come, a Job whose first pod is
    # its minimum.
    assert key in {keys.LWS_SUBGROUP_EXCLUSIVE, keys.JOBSET_EXCLUSIVE}
    return spec.first > 0 if key == keys.LWS_SUBGROUP_EXCLUSIVE else (spec.min_member or 0) > 1


@pytest.mark.long
@pytest.mark.parametrize("dialect", LABELS)
def test_random_pods_are_read_whole(dialect: str) -> None:
    """No exception, one answer in any order of the pods, bounded texts, and nothing is left out in
    silence.
    """
    print(f"seed {SEED}")
    rng, heard, gangs = random.Random(f"{SEED}{dialect}"), 0, 0
    for _ in range(OBJECTS):
        pods: list[Pod] = []
        for number in range(rng.randrange(1, 4)):
            pods.append(member(rng, dialect, number, pods[-1] if pods else None))
        first = min(pods, key=lambda each: (each.creation_s, each.name))
        pods.sort(key=lambda each: each is not first)
        group = pod_group("g", rng.choice([1, 2])) if rng.random() < 0.3 else None
        run_time(first.run_time_metadata, where="pod")
        preemption_delay(first, GangDefaults())
        spec = read(pods, group, rng)
        stated = {key: text for key, text in first.gang_metadata if key in BINDING and text.strip()}
        if spec is None:  # what asks for the gang of an owner has an effect or is told
            told = owner_problem(first, OwnerGangs.ASKED)
            assert (told is not None) == (keys.OWNER_GANG in dict(first.gang_metadata))
        if spec is None:
            continue
        gangs += 1
        assert all(len(each.text) < 1_500 for each in spec.problems)
        # nodes are labelled for the Job before it starts
        if keys.JOBSET_NODE_SELECTOR in dict(first.gang_metadata):
            stated.pop(keys.JOBSET_EXCLUSIVE, None)
        if (
            any(first.labels.get(each) for each in keys.KUEUE_ADMITTED)
            and first.shape.node_selector
        ):
            # Kueue has chosen
            stated = {key: text for key, text in stated.items() if key not in KUEUE_PLACES}
        for key in stated.keys() - {keys.OWNER_GANG}:
            assert not unheard(key, spec, stated[key]), (key, stated, spec)
            heard += 1
    print(f"{gangs} gangs, {heard} values were honoured, refused or told")
    assert heard > OBJECTS // 8
