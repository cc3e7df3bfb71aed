"""The workload of a history: nodes, gangs and plain pods, as somebody would create them; all drawn
from the seed.

Invariant: every gang fits an empty cluster of enough nodes: its members ask for less than a node
has. Who runs them is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from control_plane import objects as make

from gangsched.api.keys import MIN_CHILDREN, PARENT, SIGS, X_K8S
from tests.sim.api_server.store import Object

NAMESPACES = ("ml", "ops")
GPUS = 8
CPUS = "16"


@dataclass(slots=True)
class Job:
    """One gang, group of gangs' part or plain pod, with whoever recreates its pods; without pods a
    parent of a tree.

    `recreates`: pods that are deleted or fail come again. `is_over`: nothing of it is to run any
    more. `tree` is what the gang is in.
    """

    name: str
    namespace: str
    arrives_s: float
    members: int
    minimum: int
    pod_group: Object | None
    pods: dict[str, Object] = field(default_factory=dict)
    priority: int = 0
    recreates: bool = True
    ends: bool = False
    is_over: bool = False
    has_arrived: bool = False
    tree: Tree | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True)
class Tree:
    """What starts together: `least` of the children, each with all of its gangs. `keys` are of all
    its PodGroups.
    """

    least: int
    children: list[list[Job]] = field(default_factory=list)
    keys: frozenset[str] = frozenset()


def nodes(rng: Random) -> list[Object]:
    """Two to five nodes."""
    return [node(f"n{number}", gpus=rng.choice((4, 8, 8))) for number in range(rng.randint(2, 5))]


def node(name: str, *, gpus: int = GPUS, cpu: str = CPUS) -> Object:
    """One node."""
    return make.node(
        name, cpu=cpu, memory="64Gi", gpus=gpus, pods=110, labels={"zone": f"z{len(name) % 2}"}
    )


def jobs(rng: Random, *, within_s: float, trees: bool = False) -> list[Job]:
    """What arrives, and when; with `trees` every other one is one."""
    found: list[Job] = []
    for number in range(rng.randint(3, 8)):
        arrives_s = rng.uniform(0, within_s) if rng.random() < 0.7 else 0.0
        is_tree = trees and rng.random() < 0.5
        found += _tree(rng, f"t{number}", arrives_s) if is_tree else _draw(rng, number, arrives_s)
    return found


def _tree(rng: Random, root: str, arrives_s: float) -> list[Job]:
    """Replicas of one gang, or of two roles below a parent of their own; not all come at once."""
    namespace, priority, is_deep = rng.choice(NAMESPACES), _priority(rng), rng.random() < 0.5
    replicas = rng.randint(2, 4)
    tree = Tree(rng.randint(1, replicas))
    found = [_parent(root, namespace, arrives_s, tree.least)]
    for replica in range(replicas):
        name, comes_s = f"{root}-{replica}", arrives_s + rng.choice((0.0, 0.0, 0.0, 2.0))
        if is_deep:
            found.append(_parent(name, namespace, comes_s, 2, root))
        child = [
            _by_pod_group(rng, each, namespace, comes_s, above, priority)
            for each, above in (
                [(f"{name}a", name), (f"{name}b", name)] if is_deep else [(name, root)]
            )
        ]
        for job in child:
            job.tree = tree
        tree.children.append(child)
        found += child
    tree.keys = frozenset(job.key for job in found)
    return found


def _parent(name: str, namespace: str, arrives_s: float, least: int, above: str = "") -> Job:
    """A part without pods, whose PodGroup states how many of its children start together."""
    stated = {MIN_CHILDREN[0]: str(least), **({PARENT[0]: above} if above else {})}
    return Job(
        name, namespace, arrives_s, 0, 1, make.pod_group(name, namespace, 1, annotations=stated)
    )


def _draw(rng: Random, number: int, arrives_s: float) -> list[Job]:
    kind = rng.choices(("podgroup", "annotations", "siblings", "plain"), (5, 3, 1, 1))[0]
    namespace = rng.choice(NAMESPACES)
    if kind == "siblings":
        names = [f"{namespace}/g{number}a", f"{namespace}/g{number}b"]
        priority = _priority(rng)
        mode = rng.choice(("Strict", "NonStrict"))
        pair = [
            _by_annotations(rng, key.partition("/")[2], namespace, arrives_s, mode, priority, names)
            for key in names
        ]
        for job in pair:
            job.ends = any(each.ends for each in pair)
        return pair
    name = f"g{number}"
    if kind == "podgroup":
        return [_by_pod_group(rng, name, namespace, arrives_s)]
    if kind == "annotations":
        mode = rng.choice(("Strict", "NonStrict", "NonStrict"))
        return [_by_annotations(rng, name, namespace, arrives_s, mode, _priority(rng), ())]
    job = Job(
        name,
        namespace,
        arrives_s,
        1,
        1,
        None,
        priority=_priority(rng),
        recreates=rng.random() < 0.5,
    )
    _fill(rng, job, {}, {})
    return [job]


def _by_pod_group(
    rng: Random,
    name: str,
    namespace: str,
    arrives_s: float,
    above: str = "",
    priority: int | None = None,
) -> Job:
    members = rng.randint(1, 5)
    minimum = rng.randint(1, members) if rng.random() < 0.4 else members
    api = rng.choice((X_K8S, SIGS))
    # one watch shows parents first; a parent that is not known yet needs only the children that are
    if above:
        api = X_K8S
    timeout_s = rng.choice((None, None, 15))
    stated = {PARENT[0]: above} if above else {}
    body = make.pod_group(
        name, namespace, minimum, api=api, schedule_timeout_s=timeout_s, annotations=stated
    )
    key = "pod-group.scheduling.sigs.k8s.io" if api == SIGS else make.POD_GROUP_LABEL
    own = _priority(rng) if priority is None else priority
    job = Job(name, namespace, arrives_s, members, minimum, body, priority=own)
    job.recreates = rng.random() < 0.7
    _fill(rng, job, {key: name}, {}, may_end=not above)
    return job


def _by_annotations(
    rng: Random,
    name: str,
    namespace: str,
    arrives_s: float,
    mode: str,
    priority: int,
    groups: Sequence[str],
) -> Job:
    members = rng.randint(1, 4)
    minimum = rng.randint(1, members) if rng.random() < 0.3 else members
    waits = f"{rng.randint(5, 40)}s"
    annotations = make.gang_annotations(
        name,
        minimum,
        total=members,
        mode=mode,
        groups=groups,
        waiting_time=waits if rng.random() < 0.6 else None,
    )
    job = Job(
        name,
        namespace,
        arrives_s,
        members,
        minimum,
        None,
        priority=priority,
        recreates=rng.random() < 0.7,
    )
    _fill(rng, job, {}, annotations)
    return job


def _fill(
    rng: Random,
    job: Job,
    labels: dict[str, str],
    annotations: dict[str, str],
    *,
    may_end: bool = True,
) -> None:
    run_s = rng.uniform(4, 40) if rng.random() < 0.35 and may_end else None
    job.ends = run_s is not None
    stated = rng.random()
    if run_s is not None and stated < 0.5:
        annotations = {
            **annotations,
            "gangsched.dev/expected-runtime": f"{run_s * rng.choice((1, 1, 3, 0.3)):.0f}s",
        }
    gpus = rng.choice((0, 1, 1, 2, 2, 4))
    spec: Object = {
        "priority": job.priority,
        "terminationGracePeriodSeconds": rng.choice((0, 1, 5)),
    }
    if rng.random() < 0.1:
        spec["preemptionPolicy"] = "Never"
    for number in range(job.members):
        body = make.pod(
            f"{job.name}-{number}",
            job.namespace,
            gpus=gpus,
            cpu=rng.choice(("1", "2", "4")) if not gpus else "1",
            labels={"app": job.name, **labels},
            annotations=annotations,
            run_seconds=run_s,
            spec=spec,
        )
        job.pods[body["metadata"]["name"]] = body


def _priority(rng: Random) -> int:
    return rng.choice((0, 0, 0, 10, 100))


def budget(job: Job, minimum: int) -> Object:
    """A PodDisruptionBudget over the pods of a job."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": job.name, "namespace": job.namespace},
        "spec": {"selector": {"matchLabels": {"app": job.name}}, "minAvailable": minimum},
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }
