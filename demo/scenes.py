"""The scenes, in their order; each leaves the cluster as the next one needs it.

Invariant: a scene says what it applies, checks the effect, and says why. It never sleeps: only the
screen does, at the pace of the reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import chain, zip_longest
from typing import Final

from control_plane.api import Object
from control_plane.applying import ROOT, load_yaml
from control_plane.objects import A100, GPU_PRODUCT, gang, pod, pod_group

from demo.stage import A100_NODES, GPUS_PER_NODE, FalseClaimError, Stage

EXAMPLES = ROOT / "examples"
RED, BLUE, RACERS = "red", "blue", 16
DRIVER = "gpu.example.com"
A100_GPUS = A100_NODES * GPUS_PER_NODE
RUN_TIME = "gangsched.dev/expected-runtime"


def a_deadlock(stage: Stage) -> None:
    """kube-scheduler starts two gangs by halves."""
    stage.say(
        f"Applied for kube-scheduler, pod by pod in turn: jobs red and blue, each {RACERS} pods of"
        " 1 A100."
    )
    red, blue = (_racers(name, scheduler="default-scheduler") for name in (RED, BLUE))
    stage.create_in_turn(_alternate(red, blue))
    stage.await_none_left(A100_GPUS, RED, BLUE)
    halves = {name: stage.bound(name) for name in (RED, BLUE)}
    stage.claim(
        f"red has {halves[RED]} of {RACERS} pods and blue {halves[BLUE]}: neither can train",
        max(halves.values()) < RACERS,
    )
    stage.quote("a waiting pod of red", stage.await_waiting(RED))
    stage.say(
        "Why: kube-scheduler places pods one by one. Each job waits for what the other one holds,"
        " for ever."
    )
    stage.say("Deleted: both.")
    stage.clear(RED, BLUE)


def the_same_as_gangs(stage: Stage) -> None:
    """gangsched starts one of the two whole."""
    stage.say(
        "Applied again in the same way, with a PodGroup of minMember 16 each and schedulerName:"
        " gangsched."
    )
    red, blue = ([pod_group(name, min_member=RACERS), *_racers(name)] for name in (RED, BLUE))
    stage.create(_alternate(red, blue), {RED: RACERS, BLUE: RACERS})
    winner = stage.await_one_of((RED, BLUE), RACERS)
    loser = BLUE if winner == RED else RED
    why = stage.await_told(loser, "Unschedulable", RACERS)
    stage.claim(f"{winner} started with all {RACERS}", stage.bound(winner) == RACERS)
    stage.claim(f"{loser} has 0 bound, and holds no GPU while it waits", stage.bound(loser) == 0)
    stage.quote(f"every pod of {loser}", why)
    asked_s = stage.finish(winner)
    stage.await_bound(loser, RACERS)
    late_ms = (stage.started_s(loser) - asked_s) * 1e3
    stage.claim(
        f"{winner} has ended, and {loser} started whole {late_ms:.0f} ms later", late_ms < 10_000
    )
    stage.clear(RED, BLUE)


def one_gpu_too_many(stage: Stage) -> None:
    """A gang needs twelve whole nodes and 95 GPUs are free; `why` says what it waits for."""
    stage.say(
        "Applied: the plain pod notebook with 1 GPU, so 95 of 96 are free. It belongs to no gang."
    )
    stage.create([pod("notebook", gpus=1)])
    stage.await_pod("notebook")
    stage.say(
        "Applied: PodGroup llm with minMember 12: 12 pods of 8 GPUs, 96 in all, one more than"
        " there is."
    )
    stage.create(gang("llm", members=12, gpus=GPUS_PER_NODE), {"llm": 12})
    stage.await_told("llm", "Unschedulable", 12)
    stage.await_facts("llm", "Unschedulable")
    stage.claim("0 of 12 are bound, although there is room for 11 of them", stage.bound("llm") == 0)
    stage.type_in("why", "llm")
    stage.say(
        "Why: eleven running workers would wait for the twelfth and keep 88 GPUs from others."
    )


def room_is_freed(stage: Stage) -> None:
    """The pod in the way is deleted, and the waiting gang starts."""
    stage.say("Deleted: the pod notebook. Nothing else is done.")
    asked_s = stage.delete_pod("notebook")
    stage.await_bound("llm", 12)
    late_ms = (stage.started_s("llm") - asked_s) * 1e3
    stage.claim(
        f"all 12 pods of llm are bound, {late_ms:.0f} ms after the delete was asked for",
        late_ms < 10_000,
    )
    stage.say(
        "Why: a freed GPU wakes the gangs it could help at once; nothing is polled. All 96 GPUs are"
        " busy now."
    )
    stage.clear("llm")


def a_gang_is_preempted(stage: Stage) -> None:
    """A gang of higher priority needs three nodes: a gang of four makes room, whole."""
    stage.create_in_cluster([_priority_class("production", 1000)])
    stage.say(
        "Applied: gang serving, of 8 whole nodes and PriorityClass production, and gang sweep, of 4"
        " with none."
    )
    production = {"priorityClassName": "production"}
    stage.create(gang("serving", members=8, gpus=GPUS_PER_NODE, spec=production), {"serving": 8})
    stage.create(gang("sweep", members=4, gpus=GPUS_PER_NODE), {"sweep": 4})
    stage.await_bound("serving", 8)
    stage.await_bound("sweep", 4)
    stage.say(
        "The cluster is full. Applied: gang urgent, of 3 whole nodes and PriorityClass production."
    )
    stage.create(gang("urgent", members=3, gpus=GPUS_PER_NODE, spec=production), {"urgent": 3})
    stage.await_bound("urgent", 3)
    stage.await_gone("sweep")
    stage.claim("urgent runs with all 3, in the place of sweep", stage.bound("urgent") == 3)
    stage.claim(
        "all 4 pods of sweep were evicted, and none of serving", stage.bound("serving") == 8
    )
    stage.say(
        "Why: one pod of sweep would be of no use. A gang stops whole, and only if the other one"
        " then starts."
    )
    stage.clear("serving", "sweep", "urgent")


def a_promised_start(stage: Stage) -> None:
    """A gang of all nodes is told when it starts, and only a job that ends before then may use its
    nodes.
    """
    stage.say("Applied: gang today, of 8 whole nodes, which declares a run time of 5 minutes.")
    stage.create(_declaring("today", 8, "5m"), {"today": 8})
    stage.await_bound("today", 8)
    stage.say("Applied: gang huge, of all 12 nodes.")
    stage.create(gang("huge", members=12, gpus=GPUS_PER_NODE), {"huge": 12})
    told = stage.await_facts("huge", "Timed", "Reserved")
    stage.quote("the condition Reserved of PodGroup huge", told)
    stage.say(
        "Applied: gangs brief and open, each of one whole node. brief declares 1 minute, open"
        " nothing."
    )
    stage.create(_declaring("brief", 1, "1m"), {"brief": 1})
    stage.create(gang("open", members=1, gpus=GPUS_PER_NODE), {"open": 1})
    stage.await_bound("brief", 1)
    why = stage.await_facts("open", "Unschedulable")
    stage.claim(
        "brief runs on a reserved node: it ends before huge starts", stage.bound("brief") == 1
    )
    stage.claim("open waits, although three nodes are empty", stage.bound("open") == 0)
    stage.quote("PodGroup open", why)
    stage.say("today and brief end, earlier than they declared.")
    stage.finish("brief")
    stage.finish("today")
    stage.await_bound("huge", 12)
    stage.claim(
        "huge started on all 12 nodes, before the promised time",
        datetime.now(UTC) < _promised(told),
    )
    stage.say(
        "Why: without a reservation, small jobs would take each node that becomes free, and huge"
        " never starts."
    )
    stage.clear("today", "huge", "brief", "open")


def launcher_and_workers(stage: Stage) -> None:
    """The objects of mpi-operator; the launcher comes last."""
    group, launcher, *workers = load_yaml(EXAMPLES / "mpi-launcher-workers.yaml")
    stage.say(
        "Applied: examples/mpi-launcher-workers.yaml as mpi-operator emits it, but the launcher"
        " held back."
    )
    stage.create([group, *workers], {"pi": 3})
    why = stage.await_told("pi", "WaitingForMembers", 2)
    stage.claim("the 2 workers wait, although there is room for them", stage.bound("pi") == 0)
    stage.quote("each of them", why)
    stage.say("Applied: the launcher, which asks for no GPU.")
    stage.create([launcher])
    stage.await_bound("pi", 3)
    stage.claim("launcher and workers are bound together", stage.bound("pi") == 3)
    stage.say("Why: minMember counts the launcher. Members may differ in what they ask for.")


def devices_that_fit_together(stage: Stage) -> None:
    """One GPU as a whole or as two halves, and two members that each prefer the whole one
    (Kubernetes #138765).
    """
    stage.create_in_cluster(_a_gpu_in_parts("node-01"))
    stage.say(
        "Published, as a driver would: a GPU of node-01 that is one device, whole, or two, half-0"
        " and half-1."
    )
    stage.say(
        "Applied: PodGroup pair with minMember 2; each pod claims the whole GPU, or else a half"
        " of it."
    )
    claims = [f"pair-{member}" for member in range(2)]
    uses = ({"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]} for claim in claims)
    pods = (pod(claim, gang="pair", spec=spec) for claim, spec in zip(claims, uses, strict=True))
    stage.create(
        [pod_group("pair", min_member=2), *map(_whole_or_half, claims), *pods], {"pair": 2}
    )
    stage.await_bound("pair", 2)
    stage.claim(
        "both are bound, each with a half", stage.devices_of(*claims) == ["half-0", "half-1"]
    )
    stage.say(
        "Why: devices are chosen for all members together. The first one does not keep its first"
        " choice."
    )


def _a_gpu_in_parts(node: str) -> list[Object]:
    def part(name: str, kind: str, memory: str) -> Object:
        counters = [{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}]
        return {
            "name": name,
            "attributes": {"part": {"string": kind}},
            "consumesCounters": counters,
        }

    devices = [
        part("whole", "whole", "80Gi"),
        *(part(f"half-{n}", "half", "40Gi") for n in range(2)),
    ]
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    slices = ({"devices": devices}, {"sharedCounters": counters})
    return [
        _resource(
            "DeviceClass",
            DRIVER,
            {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        ),
        *(
            _resource(
                "ResourceSlice",
                f"{node}-{n}",
                {"driver": DRIVER, "nodeName": node, "pool": pool, **each},
            )
            for n, each in enumerate(slices)
        ),
    ]


def _whole_or_half(name: str) -> Object:
    def one(kind: str) -> Object:
        expression = f'device.attributes["{DRIVER}"].part == "{kind}"'
        return {
            "name": kind,
            "deviceClassName": DRIVER,
            "selectors": [{"cel": {"expression": expression}}],
        }

    request = {"name": "gpu", "firstAvailable": [one("whole"), one("half")]}
    return _resource("ResourceClaim", name, {"devices": {"requests": [request]}})


def _resource(kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _promised(told: str) -> datetime:
    """The time in "starts at 2026-11-28T22:04:42Z at the latest"."""
    found = re.search(r"starts at (\S+) at the latest", told)
    if found is None:
        raise FalseClaimError(f"A latest start should be promised, and is not: {told}")
    return datetime.fromisoformat(found[1])


def _racers(name: str, *, scheduler: str = "gangsched") -> list[Object]:
    selector = {GPU_PRODUCT: A100}
    return [
        pod(f"{name}-{index}", gang=name, gpus=1, node_selector=selector, scheduler_name=scheduler)
        for index in range(RACERS)
    ]


def _alternate(red: Iterable[Object], blue: Iterable[Object]) -> Iterable[Object]:
    return chain.from_iterable(zip_longest(red, blue))


def _declaring(name: str, members: int, run_time: str) -> list[Object]:
    return gang(name, members=members, gpus=GPUS_PER_NODE, annotations={RUN_TIME: run_time})


def _priority_class(name: str, value: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


Scene = Callable[[Stage], None]
SCENES: Final[tuple[tuple[str, Scene], ...]] = (
    ("kube-scheduler: two jobs wait for each other", a_deadlock),
    ("gangsched: the same two jobs", the_same_as_gangs),
    ("A gang that needs one GPU more than there is", one_gpu_too_many),
    ("Room is freed", room_is_freed),
    ("A whole gang is preempted", a_gang_is_preempted),
    ("A promised start", a_promised_start),
    ("A launcher and its workers", launcher_and_workers),
    ("Devices that only fit together", devices_that_fit_together),
)
