"""The scenes, in their order; each leaves the cluster as the next one needs it.

Invariant: a scene says what it applies, checks the effect, and says why. It never sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, zip_longest
from typing import Final

from control_plane.api import Object
from control_plane.applying import ROOT, load_yaml
from control_plane.objects import A100, GPU_PRODUCT, gang, pod, pod_group

from demo.stage import GPUS_PER_NODE, Stage

EXAMPLES = ROOT / "examples"
RED, BLUE, RACERS = "red", "blue", 16
DRIVER = "gpu.example.com"


def a_gang_that_fits(stage: Stage) -> None:
    """Eight whole nodes of twelve."""
    stage.say("Applied: PodGroup resnet with minMember 8, and its 8 pods, each asking for a whole node's 8 GPUs.")
    created_s = stage.create(gang("resnet", members=8, gpus=GPUS_PER_NODE), {"resnet": 8})
    stage.await_bound("resnet", 8)
    late_ms = max(0.0, stage.started_s("resnet") - created_s) * 1e3
    stage.claim(f"all 8 are bound, {late_ms:.0f} ms after the last of them was created", stage.bound("resnet") == 8)
    stage.say("Why: 12 nodes were empty. All eight places were found first, then all eight pods were bound.")


def one_gpu_too_many(stage: Stage) -> None:
    """A gang needs four whole nodes and 31 GPUs are free."""
    stage.say("Applied: the plain pod notebook with 1 GPU, so 31 are free. It belongs to no gang and starts alone.")
    stage.create([pod("notebook", gpus=1)])
    stage.await_pod("notebook")
    stage.say("Applied: PodGroup llm with minMember 4: 4 pods of 8 GPUs, 32 in all, one more than there is.")
    stage.create(gang("llm", members=4, gpus=GPUS_PER_NODE), {"llm": 4})
    why = stage.await_told("llm", "Unschedulable", 4)
    stage.claim("0 of 4 are bound, although there is room for 3 of them", stage.bound("llm") == 0)
    stage.quote("the condition of every pod of llm", why)
    stage.quote("the condition Scheduled of PodGroup llm", stage.await_facts("llm", "Unschedulable"))
    stage.say("Why: three running workers would wait for the fourth and keep 24 GPUs from others. All or nothing.")


def room_is_freed(stage: Stage) -> None:
    """The pod in the way is deleted, and the waiting gang starts."""
    stage.say("Deleted: the pod notebook. Nothing else is done.")
    asked_s = stage.delete_pod("notebook")
    stage.await_bound("llm", 4)
    late_ms = (stage.started_s("llm") - asked_s) * 1e3
    stage.claim(f"all 4 pods of llm are bound, {late_ms:.0f} ms after the delete was asked for", late_ms < 10_000)
    stage.say("Why: a freed GPU wakes the gangs it could help at once; nothing is polled. All 96 GPUs are busy now.")
    stage.say("Deleted: both gangs, for the next scene.")
    stage.clear("resnet", "llm")


def two_gangs_race(stage: Stage) -> None:
    """Two gangs want all A100s and are created pod by pod in turn."""
    stage.say(f"Applied at once, pod by pod in turn: gangs red and blue, each {RACERS} pods of 1 A100.")
    red, blue = (gang(name, members=RACERS, gpus=1, node_selector={GPU_PRODUCT: A100}) for name in (RED, BLUE))
    stage.create(chain.from_iterable(zip_longest(red, blue)), {RED: RACERS, BLUE: RACERS})
    winner = stage.await_one_of((RED, BLUE), RACERS)
    loser = BLUE if winner == RED else RED
    why = stage.await_told(loser, "Unschedulable", RACERS)
    stage.claim(f"{winner} started with all {RACERS}", stage.bound(winner) == RACERS)
    stage.claim(f"{loser} has 0 bound", stage.bound(loser) == 0)
    stage.quote(f"every pod of {loser}", why)
    stage.say("Why: there are 16 A100s. Placed pod by pod, each gang would have got 8 and both would wait for ever.")


def annotations_only(stage: Stage) -> None:
    """Koordinator's annotations, without any PodGroup."""
    stage.say("Applied: examples/annotation-gang.yaml: 3 pods whose annotations name the gang etl and its minimum.")
    stage.create(load_yaml(EXAMPLES / "annotation-gang.yaml"), {"etl": 3})
    stage.await_bound("etl", 3)
    stage.claim("all 3 are bound", stage.bound("etl") == 3)
    stage.say("Why: the annotations are complete in themselves. No PodGroup is needed, nor the definition of one.")


def launcher_and_workers(stage: Stage) -> None:
    """The objects of mpi-operator; the launcher comes last."""
    group, launcher, *workers = load_yaml(EXAMPLES / "mpi-launcher-workers.yaml")
    stage.say("Applied: examples/mpi-launcher-workers.yaml as mpi-operator emits it, but the launcher held back.")
    stage.create([group, *workers], {"pi": 3})
    why = stage.await_told("pi", "WaitingForMembers", 2)
    stage.claim("the 2 workers wait, although there is room for them", stage.bound("pi") == 0)
    stage.quote("each of them", why)
    stage.say("Applied: the launcher, which asks for no GPU.")
    stage.create([launcher])
    stage.await_bound("pi", 3)
    stage.claim("launcher and workers are bound together", stage.bound("pi") == 3)
    stage.say("Why: minMember counts the launcher. Members may differ in what they ask for.")


def ray_cluster(stage: Stage) -> None:
    """The objects of KubeRay, with the schedulerName it writes."""
    stage.say("Applied: examples/kuberay-head-workers.yaml: a head and 2 workers as KubeRay emits them.")
    stage.create(load_yaml(EXAMPLES / "kuberay-head-workers.yaml"), {"raycluster": 3})
    stage.await_bound("raycluster", 3)
    names = {member["spec"]["schedulerName"] for member in stage.members("raycluster")}
    stage.claim("all 3 are bound", stage.bound("raycluster") == 3)
    stage.claim("their schedulerName is scheduler-plugins-scheduler", names == {"scheduler-plugins-scheduler"})
    stage.say("Why: KubeRay writes that name itself, and gangsched answers to several names.")


def devices_that_fit_together(stage: Stage) -> None:
    """One GPU as a whole or as two halves, and two members that each prefer the whole one (Kubernetes #138765)."""
    stage.create_in_cluster(_a_gpu_in_parts("node-01"))
    stage.say("Published, as a driver would: a GPU of node-01 that is one device, whole, or two, half-0 and half-1.")
    stage.say("Applied: PodGroup pair with minMember 2; each pod claims the whole GPU, or else a half of it.")
    claims = [f"pair-{member}" for member in range(2)]
    uses = ({"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]} for claim in claims)
    pods = (pod(claim, gang="pair", spec=spec) for claim, spec in zip(claims, uses, strict=True))
    stage.create([pod_group("pair", min_member=2), *map(_whole_or_half, claims), *pods], {"pair": 2})
    stage.await_bound("pair", 2)
    stage.claim("both are bound, each with a half", stage.devices_of(*claims) == ["half-0", "half-1"])
    stage.say("Why: devices are chosen for all members together. The first one does not keep its first choice.")


def _a_gpu_in_parts(node: str) -> list[Object]:
    def part(name: str, kind: str, memory: str) -> Object:
        counters = [{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}]
        return {"name": name, "attributes": {"part": {"string": kind}}, "consumesCounters": counters}

    devices = [part("whole", "whole", "80Gi"), *(part(f"half-{n}", "half", "40Gi") for n in range(2))]
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    slices = ({"devices": devices}, {"sharedCounters": counters})
    return [
        _resource("DeviceClass", DRIVER, {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}),
        *(
            _resource("ResourceSlice", f"{node}-{n}", {"driver": DRIVER, "nodeName": node, "pool": pool, **each})
            for n, each in enumerate(slices)
        ),
    ]


def _whole_or_half(name: str) -> Object:
    def one(kind: str) -> Object:
        expression = f'device.attributes["{DRIVER}"].part == "{kind}"'
        return {"name": kind, "deviceClassName": DRIVER, "selectors": [{"cel": {"expression": expression}}]}

    request = {"name": "gpu", "firstAvailable": [one("whole"), one("half")]}
    return _resource("ResourceClaim", name, {"devices": {"requests": [request]}})


def _resource(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


Scene = Callable[[Stage], None]
SCENES: Final[tuple[tuple[str, Scene], ...]] = (
    ("A gang that fits", a_gang_that_fits),
    ("A gang that needs one GPU more than there is", one_gpu_too_many),
    ("Room is freed", room_is_freed),
    ("Two gangs race for one's worth of room", two_gangs_race),
    ("A gang by annotations alone", annotations_only),
    ("A launcher and its workers", launcher_and_workers),
    ("A Ray cluster", ray_cluster),
    ("Devices that only fit together", devices_that_fit_together),
)
