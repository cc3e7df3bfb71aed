"""The live page beside the commands: after random events both say the same, byte for byte.

What a tab has that saw only changes, and what a new tab gets, are compared with `map`, `queue` and
`why`, which read the cluster anew.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from kubectl_gangsched.main import cli
from kubectl_gangsched.page.document import Moment
from tests.fake_api import listed, node, pod
from tests.live_page import GANG_LISTS, NODES, PODS, Page, Stream, cluster, live

GANGS_KNOWN = 6
REASONS = ("Unschedulable", "Holding", "Waiting", "TopologyUnsatisfied")


def gang(name: str, position: int | None, message: str, **status: Any) -> dict[str, Any]:
    """A gang of the gangs API."""
    members = {"total": 2, "byState": {"pending": 2} if position else {"bound": 2}}
    place = {"position": position, "waitingSince": "2026-01-01T00:00:00Z"} if position else {}
    return {
        "metadata": {"namespace": "team", "name": name},
        "spec": {"min": 2},
        "status": {"members": members, "message": message, **place, **status},
    }


SLICES = ("/apis/resource.k8s.io/v1/resourceslices",)
CLAIMS = ("/apis/resource.k8s.io/v1/resourceclaims",)
DRIVER = "tpu.example.com"


def device_slice(node_name: str, devices: int, generation: int = 1) -> dict[str, Any]:
    """All devices of a node, as its driver publishes them."""
    return {
        "metadata": {"name": f"slice-{node_name}", "uid": f"uid-slice-{node_name}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": f"d{number}"} for number in range(devices)],
        },
    }


def device_claim(name: str, node_name: str, device: str, uid: str = "") -> dict[str, Any]:
    """A claim of namespace "team" that has a device, and the pod that may use it."""
    result = {"request": "r", "driver": DRIVER, "pool": node_name, "device": device}
    users = [{"resource": "pods", "name": uid, "uid": uid}] if uid else []
    request = {"name": "r", "exactly": {"deviceClassName": "tpu"}}
    return {
        "metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": users},
    }


def check(tmp_path: Path, *, seed: int, events: int, has_api: bool) -> None:
    """Let so many events happen, and compare. Raises AssertionError, which names the seed."""
    chance = random.Random(seed)
    answers = cluster()
    answers |= {SLICES[0]: listed(device_slice("n0", 4)), CLAIMS[0]: listed()}
    if has_api:
        answers |= {path: listed() for path in GANG_LISTS}

    with live(tmp_path, answers) as page:
        stream = Stream(page)
        for number in range(events):
            _event(chance, page, number, has_api=has_api)

        _settle(page, stream, has_api=has_api)
        config = str(tmp_path / "kubeconfig")
        for moment in (stream.moment, page.document()[1].moment):
            _compare_map(moment, config, seed)
            _compare_gangs(moment, config, seed)

        stream.close()


def _event(chance: random.Random, page: Page, number: int, *, has_api: bool) -> None:
    kind = chance.choice(["MODIFIED", "MODIFIED", "DELETED"])
    what = chance.random()
    if what < 0.1:
        name = f"n{chance.randrange(2, 6)}"
        spec = {"unschedulable": True} if chance.random() < 0.4 else {}
        page.fake.change(kind, NODES, node(name, chance.choice([4, 8]), **spec))
    elif what < 0.15:
        device = chance.randrange(4)
        uid = f"uid-p-{chance.randrange(30)}" if chance.random() < 0.8 else ""
        where = chance.choice(["n0", "n1"])
        page.fake.change(kind, CLAIMS, device_claim(f"c{device}", where, f"d{device}", uid))
    elif what < 0.17:
        where = chance.choice(["n0", "n1", "n3"])
        changed = device_slice(where, chance.choice([2, 4]), generation=number)
        page.fake.change(kind, SLICES, changed)
    elif what < 0.45 and has_api:
        name = f"g{chance.randrange(GANGS_KNOWN)}"
        position = chance.randrange(1, 1_000) if chance.random() < 0.7 else None
        message = f"gang team/{name} needs {chance.randrange(2, 9)} pods <{number}>"
        changed = gang(name, position, message, reason=chance.choice(REASONS))
        page.fake.change(kind, GANG_LISTS, changed)
    else:
        which = chance.randrange(30)
        of_gang = f"g{which % GANGS_KNOWN}" if which % 5 else ""
        where = chance.choice(["", "n0", "n1", "n3"])
        message = f"0/{number} nodes are available" if chance.random() < 0.5 else ""
        changed = pod(
            f"p-{which}",
            gang=of_gang,
            node=where,
            gpus=chance.choice([1, 2, 4]),
            message=message,
        )
        page.fake.change(kind, PODS, changed)


def _settle(page: Page, stream: Stream, *, has_api: bool) -> None:
    """Wait for the last event of each watch."""
    page.fake.change("ADDED", NODES, node("last", 8))
    page.fake.change("ADDED", PODS, pod("last-0", node="n0", gpus=1))
    page.fake.change("ADDED", CLAIMS, device_claim("last", "last", "d0", "uid-last-0"))
    page.fake.change("ADDED", SLICES, device_slice("last", 4))
    stream.until(
        lambda stream: (
            any(
                devices.users.get("pod:team/last-0") and devices.resource == DRIVER
                for devices in stream.moment.nodes["last"].devices
            )
            if "last" in stream.moment.nodes
            else False
        )
    )
    stream.until(lambda stream: "last" in stream.moment.nodes)
    stream.until(lambda stream: "pod:team/last-0" in stream.moment.bars)
    if has_api:
        page.fake.change("ADDED", GANG_LISTS, gang("last", None, ""))
        stream.until(lambda stream: "team/last" in stream.moment.gangs)


def _told(config: str, *words: str) -> str:
    answer = CliRunner().invoke(cli, [*words, "--kubeconfig", config])
    assert answer.exit_code == 0, answer.output
    return answer.output


def _compare_map(moment: Moment, config: str, seed: int) -> None:
    told = json.loads(_told(config, "map", "-o", "json"))["resources"]
    assert set(told) == {"nvidia.com/gpu", DRIVER}
    shown = {}
    for name, row in moment.nodes.items():
        for devices in row.devices:
            users = {key.removeprefix("pod:"): number for key, number in devices.users.items()}
            shown[devices.resource, name] = row.closed, devices.total, devices.free, users

    printed = {}
    for resource, rows in told.items():
        for row in rows:
            key = resource, row["node"]
            printed[key] = row["closed"], row["total"], row["free"], row["users"]

    assert shown == printed, seed


def _compare_gangs(moment: Moment, config: str, seed: int) -> None:
    told = json.loads(_told(config, "queue", "-A", "-o", "json"))["gangs"]
    waiting = [f"{printed['namespace']}/{printed['name']}" for printed in told]
    assert [key for key, _ in moment.queue] == waiting, seed
    assert set(waiting) <= set(moment.gangs), seed

    for key, row in moment.gangs.items():
        first, *_ = _told(config, "why", f"gang/{key.partition('/')[2]}").splitlines()
        assert row.sentence == first, (seed, key)
