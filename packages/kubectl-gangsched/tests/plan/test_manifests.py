"""Manifests: how many pods of which templates a controller would make, and which gangs they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_gangsched.plan.manifests import gangs, parsed, read
from kubectl_gangsched.session import CannotAnswer

X = "scheduling.x-k8s.io"
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "node"}]}}


def job(**spec: Any) -> dict[str, Any]:
    return {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": TEMPLATE, **spec}}


def of(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "j"}, "spec": spec}


JOB_SET = {
    "replicatedJobs": [
        {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
        {
            "name": "workers",
            "replicas": 2,
            "template": {"spec": {"parallelism": 3, "template": TEMPLATE}},
        },
    ]
}
RAY = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [
        {"groupName": "gpu", "replicas": 2, "numOfHosts": 4, "template": TEMPLATE}
    ],
}
RUNTIME = {
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {
        "mlPolicy": {"numNodes": 1},
        "template": {
            "spec": {
                "replicatedJobs": [{"name": "node", "template": {"spec": {"template": TEMPLATE}}}]
            }
        },
    },
}
TRAIN_JOB = of(
    "TrainJob",
    {
        "runtimeRef": {"name": "torch"},
        "trainer": {"numNodes": 4, "resourcesPerNode": {"limits": {}}},
    },
)
WORKLOADS: list[tuple[list[dict[str, Any]], dict[str, int]]] = [
    ([of("Pod", TEMPLATE["spec"])], {"j": 1}),
    ([job()], {"j": 1}),
    ([job(parallelism=8)], {"j": 8}),
    ([job(parallelism=8, completions=3)], {"j": 3}),
    (
        [of("CronJob", {"jobTemplate": {"spec": {"parallelism": 2, "template": TEMPLATE}}})],
        {"j": 2},
    ),
    ([of("Deployment", {"replicas": 3, "template": TEMPLATE})], {"j": 3}),
    ([of("StatefulSet", {"template": TEMPLATE})], {"j": 1}),
    ([of("JobSet", JOB_SET)], {"driver": 1, "workers": 6}),
    (
        [
            of(
                "PyTorchJob",
                {
                    "pytorchReplicaSpecs": {
                        "Master": {"template": TEMPLATE},
                        "Worker": {"replicas": 7, "template": TEMPLATE},
                    }
                },
            )
        ],
        {"master": 1, "worker": 7},
    ),
    ([of("TFJob", {"tfReplicaSpecs": {"PS": {"replicas": 2, "template": TEMPLATE}}})], {"ps": 2}),
    (
        [
            of(
                "MPIJob",
                {
                    "mpiReplicaSpecs": {
                        "Launcher": {"template": TEMPLATE},
                        "Worker": {"replicas": 2, "template": TEMPLATE},
                    }
                },
            )
        ],
        {"launcher": 1, "worker": 2},
    ),
    ([TRAIN_JOB, RUNTIME], {"node": 4}),
    ([of("RayCluster", RAY)], {"head": 1, "gpu": 8}),
    ([of("RayJob", {"rayClusterSpec": RAY})], {"head": 1, "gpu": 8}),
]


@pytest.mark.parametrize(
    ("objects", "expected"),
    WORKLOADS,
    ids=[f"{w[0][0]['kind']}-{sum(w[1].values())}" for w in WORKLOADS],
)
def test_each_workload_makes_its_pods(
    objects: list[dict[str, Any]], expected: dict[str, int]
) -> None:
    """The pods of one object that name no gang are one gang, of the object's name."""
    (gang,) = gangs(objects)
    assert {each.name: each.count for each in gang.pod_sets} == expected
    assert (gang.name, gang.declared, gang.pods) == ("j", False, sum(expected.values()))


def test_a_train_job_asks_for_what_its_trainer_says() -> None:
    """resourcesPerNode replaces the runtime's."""
    (gang,) = gangs([TRAIN_JOB, RUNTIME])
    assert gang.pod_sets[0].template["spec"]["containers"] == [
        {"name": "node", "resources": {"limits": {}}}
    ]


def test_pods_that_name_a_gang_are_of_it_wherever_they_come_from() -> None:
    """Two objects with one gang are one; its PodGroup in the file gives the minimum."""
    marked = {"metadata": {"labels": {f"{X}/pod-group": "train"}}, **TEMPLATE}
    group = {"kind": "PodGroup", "metadata": {"name": "train"}, "spec": {"minMember": 3}}
    other = {"kind": "Job", "metadata": {"name": "alone"}, "spec": {"template": TEMPLATE}}
    gang, alone = gangs(
        [group, job(parallelism=2, template=marked), of("Deployment", {"template": marked}), other]
    )
    assert (gang.name, gang.declared, gang.pods, gang.min_member) == ("train", True, 3, 3)
    assert (alone.name, alone.declared, alone.pods, alone.min_member) == ("alone", False, 1, None)


def test_a_native_pod_group_is_one_too() -> None:
    """spec.schedulingGroup names it; its policy has the minimum. The pods are asked about under the
    custom label.
    """
    spec = {"schedulingGroup": {"podGroupName": "train"}, **TEMPLATE["spec"]}
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": policy,
    }
    (gang,) = gangs([group, of("Deployment", {"replicas": 3, "template": {"spec": spec}})])
    assert (gang.name, gang.declared, gang.pods, gang.min_member) == ("train", True, 3, 2)
    (pod_set,) = gang.pod_sets
    assert pod_set.template["metadata"]["labels"] == {f"{X}/pod-group": "train"}
    assert "schedulingGroup" not in pod_set.template["spec"]


def test_annotations_of_the_pod_group_reach_its_pods() -> None:
    """As settings of the gang; what a pod says itself wins."""
    group = {
        "kind": "PodGroup",
        "metadata": {
            "name": "train",
            "annotations": {"gangsched.dev/topology": "rack", "other": "x"},
        },
        "spec": {"minMember": 1},
    }
    marked = {"metadata": {"labels": {f"{X}/pod-group": "train"}}, **TEMPLATE}
    own = {
        "metadata": {**marked["metadata"], "annotations": {"gangsched.dev/topology": "zone"}},
        **TEMPLATE,
    }
    (gang,) = gangs([group, job(template=marked), of("Deployment", {"template": own})])
    assert [each.template["metadata"]["annotations"] for each in gang.pod_sets] == [
        {"gangsched.dev/topology": "rack"},
        {"gangsched.dev/topology": "zone"},
    ]


def test_the_scheduling_policy_of_an_operator_is_the_minimum() -> None:
    """runPolicy.schedulingPolicy.minAvailable, which the operator writes into the PodGroup that it
    makes.
    """
    spec = {
        "runPolicy": {"schedulingPolicy": {"minAvailable": 2}},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": TEMPLATE}},
    }
    assert gangs([of("PyTorchJob", spec)])[0].min_member == 2


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        (
            [{"kind": "ConfigMap"}, {"kind": "Service"}],
            r"There is no pod template in the file \(ConfigMap, Service\)\.",
        ),
        ([of("DaemonSet", {"template": TEMPLATE})], "DaemonSet j has a pod for each node"),
        ([TRAIN_JOB], "put that into the file"),
        ([of("Job", {"parallelism": "many", "template": TEMPLATE})], "Job j is not understood"),
        ([of("JobSet", {"replicatedJobs": [{}]})], "JobSet j is not understood"),
    ],
    ids=["no template", "DaemonSet", "TrainJob", "bad number", "bad JobSet"],
)
def test_what_cannot_be_planned_is_one_sentence(objects: list[dict[str, Any]], said: str) -> None:
    """Never a traceback."""
    with pytest.raises(CannotAnswer, match=said):
        gangs(objects)


def test_files_have_several_documents_and_lists(tmp_path: Path) -> None:
    """Empty documents count for nothing; something that is no object is told."""
    path = tmp_path / "m.yaml"
    path.write_text(yaml.safe_dump_all([job(), {"kind": "List", "items": [job()]}, None]))
    assert [each["kind"] for each in read(path)] == ["Job", "Job"]
    for text, said in (
        ("a: [", "is no YAML"),
        ("text", "no Kubernetes object"),
        ("{}\n---\n- 1", "no Kubernetes object"),
    ):
        path.write_text(text)
        with pytest.raises(CannotAnswer, match=said):
            read(path)
    with pytest.raises(CannotAnswer, match="No such file"):
        read(tmp_path / "none")


@pytest.mark.parametrize(
    "text",
    [
        "kind: PodGroup",
        "{kind: PodGroup, metadata: x}",
        "{kind: Pod, metadata: x, spec: {}}",
        "{kind: List, items: 5}",
        "{kind: Pod, metadata: {name: a, labels: 3}, spec: {}}",
        "{kind: Pod, metadata: {name: 2020-13-45}}",
        "{kind: Deployment, spec: {replicas: .inf, template: {spec: {containers: [a]}}}}",
    ],
)
def test_what_is_no_manifest_is_a_sentence(text: str) -> None:
    """Whatever is pasted or dropped: never a bug."""
    with pytest.raises(CannotAnswer, match=r"^(The manifest|Pod|PodGroup|Deployment) .*\.$"):
        gangs(parsed(text, "The manifest"))


POD = "kind: Pod\nmetadata: {name: a}\n"


def bomb(levels: int) -> str:
    """A pod whose annotations double with each line."""
    lines = ["x0: &x0 [a, b]"]
    lines += [
        f"x{number}: &x{number} [*x{number - 1}, *x{number - 1}]" for number in range(1, levels)
    ]
    return POD + "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (POD + "spec: " + "[" * 30_000 + "]" * 30_000, "has more than 100 levels"),
        (POD + "spec: " + "{a: " * 2_000 + "}" * 2_000, "has more than 100 levels"),
        (bomb(40), "has aliases that repeat more than 100,000 values"),
        (POD + "spec: &s {containers: *s}", "has an alias, [*]s, of nothing that is complete"),
        (POD + "spec: *s", "has an alias, [*]s, of nothing that is complete"),
    ],
    ids=["lists", "maps", "bomb", "itself", "unknown"],
)
def test_what_has_no_bounds_is_a_sentence(text: str, said: str) -> None:
    """Before anything is built of it: 60 KB of brackets would end the interpreter, and forty
    aliases would be a terabyte when the templates are encoded.
    """
    with pytest.raises(CannotAnswer, match=rf"^The manifest {said}.*: that is no manifest\.$"):
        gangs(parsed(text, "The manifest"))


def test_aliases_of_a_few_values_are_read() -> None:
    """Anchors, merge keys, and the same anchor again in the next document."""
    text = "x: &x {kind: Pod}\nkind: Pod\nspec: {<<: *x, other: *x}"
    (first, second) = parsed(f"{text}\n---\n{text}", "The manifest")
    assert first == second
    assert first["spec"] == {"kind": "Pod", "other": {"kind": "Pod"}}


EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.yaml"))
UNREAD = {"leaderworkerset": "LeaderWorkerSet", "sparkapplication": "SparkApplication"}
"""Kinds that are not read, by the example."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_has_gangs(path: Path) -> None:
    """What we show can be asked about, or the answer names the kind that cannot."""
    if path.stem in UNREAD:
        with pytest.raises(CannotAnswer, match=UNREAD[path.stem]):
            gangs(read(path))
    else:
        assert all(each.pods for each in gangs(read(path)))
