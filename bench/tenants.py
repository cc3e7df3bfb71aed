"""Tenants: how long a gang of one namespace waits while another namespace does what it can to slow
it down.

`python -m bench.tenants [--gangs 10000] [--samples 30] [--json]` binds small gangs of the namespace
`quiet`, one after the other, on a cluster of its own; then once more while the namespace `hostile`
has that many gangs that do not fit. All name one gang, which is edited all the time; among them are
lists of 14,000 names and annotations of 256 KiB. Both in one run. It counts what is written about
the hostile gangs meanwhile: conditions and Events, in bytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of

PODS = "/api/v1/pods"
EVENTS = "/apis/events.k8s.io/v1/events"
HOSTILE, QUIET = "hostile", "quiet"
GROUPS = make.KOORDINATOR + "groups"
WITHIN_S = 120.0
EDIT_EVERY_S = 0.1
LARGE_EVERY = 100
"""One gang in so many has all the annotations that the API server takes."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds from the creation of a gang's last pod until all are bound, of so many gangs one
    after the other.
    """

    case: str
    samples: int
    median_s: float
    most_s: float


@dataclass(frozen=True, slots=True)
class Written:
    """What was written about the hostile gangs while they were there."""

    gangs: int
    seconds: float
    conditions: int
    events: int
    bytes_a_gang: float
    bytes_a_second: float


class Counting:
    """Counts the bytes of conditions and Events in one namespace."""

    def __init__(self) -> None:
        self.conditions = self.events = self.bytes = 0

    def pod(self, kind: str, item: Object, _seen_s: float) -> None:
        """A pod changed."""
        if kind == "MODIFIED" and item["metadata"]["namespace"] == HOSTILE:
            said = [
                each
                for each in item["status"].get("conditions", ())
                if each["type"] == "PodScheduled"
            ]
            self.conditions += 1
            self.bytes += len(json.dumps(said))

    def event(self, kind: str, item: Object, _seen_s: float) -> None:
        """An Event was written."""
        if kind != "DELETED" and item["metadata"]["namespace"] == HOSTILE:
            self.events += 1
            self.bytes += len(json.dumps(item))


def measure(*, gangs: int, samples: int) -> tuple[Waits, Waits, Written]:
    """Without and with the hostile tenant, one after the other, on a control plane of their own."""
    with ControlPlane() as plane, closing(Api.of(plane)) as api:
        apply_manifests(api)
        make.create_all(
            api, [make.namespace(HOSTILE), make.namespace(QUIET), make.node("n", gpus=8)]
        )
        make.create_all(
            api, [make.pod("filler", gpus=4, scheduler_name="other", spec={"nodeName": "n"})]
        )
        counting = Counting()
        with ExitStack() as stack:
            pods = stack.enter_context(Following(api, PODS, on_change=counting.pod))
            stack.enter_context(Following(api, EVENTS, on_change=counting.event))
            daemon = Daemon(plane, ready_timeout_s=WITHIN_S)
            # what is left to be written about the hostile gangs is not waited for
            stack.callback(daemon.kill)
            daemon.start()
            alone = waits("alone", api, pods, samples)
            began_s = time.monotonic()
            make.create_all(api, hostile(gangs))
            with editing(api):
                beside = waits("beside the tenant", api, pods, samples)
            seconds = time.monotonic() - began_s
    written = Written(
        gangs,
        round(seconds, 1),
        counting.conditions,
        counting.events,
        round(counting.bytes / gangs),
        round(counting.bytes / seconds),
    )
    return alone, beside, written


def waits(case: str, api: Api, pods: Following, samples: int) -> Waits:
    """Bind gangs of two, each deleted before the next one comes."""
    took: list[float] = []
    for number in range(samples):
        name = f"{case[0]}{number}"
        make.create_all(api, make.gang(name, QUIET, members=2, gpus=1))
        began_s = time.monotonic()
        pods.wait_for(
            lambda items, name=name: len(nodes_of(items, f"{name}-")) == 2,  # type: ignore[misc]
            within_s=WITHIN_S,
            what=name,
        )
        took.append(time.monotonic() - began_s)
        for index in range(2):
            api.delete(f"/api/v1/namespaces/{QUIET}/pods/{name}-{index}")
    return Waits(case, samples, round(statistics.median(took), 3), round(max(took), 3))


def hostile(gangs: int) -> Iterator[Object]:
    """Gangs of one pod that fit in the empty cluster only, and that all name the gang `x` of their
    namespace.
    """
    yield member("x", groups=[f"{HOSTILE}/x"])
    for number in range(gangs):
        name = f"g{number:05}"
        listed = [
            f"{HOSTILE}/{name}",
            f"{HOSTILE}/x",
            *(f"{HOSTILE}/{name}-{index}" for index in range(30)),
        ]
        more: dict[str, str] = {}
        if number % LARGE_EVERY == 0:
            listed = [f"{HOSTILE}/{index}" for index in range(14_000)]
            more = {"filler": "x" * (262_000 - 14_000 * (len(HOSTILE) + 10))}
        yield member(name, groups=listed, more=more)


def member(name: str, *, groups: Sequence[str], more: dict[str, str] | None = None) -> Object:
    """The only pod of a gang."""
    notes = make.gang_annotations(name, 1, groups=groups)
    return make.pod(name, HOSTILE, gpus=8, annotations={**notes, **(more or {})})


@contextmanager
def editing(api: Api) -> Iterator[None]:
    """Edit the gang that all others name, ten times a second."""
    ends = threading.Event()

    def edit() -> None:
        number = 0
        while not ends.wait(EDIT_EVERY_S):
            number += 1
            listed = json.dumps([f"{HOSTILE}/x", f"{HOSTILE}/y{number}"])
            api.patch(
                f"/api/v1/namespaces/{HOSTILE}/pods/x",
                {"metadata": {"annotations": {GROUPS: listed}}},
            )

    thread = threading.Thread(target=edit, name="editing")
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gangs", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    alone, beside, written = measure(gangs=options.gangs, samples=options.samples)
    if options.json:
        print(json.dumps([asdict(each) for each in (alone, beside, written)], indent=2))
        return 0
    for each in (alone, beside):
        print(
            f"{each.case}: {each.samples} gangs were bound in {each.median_s} s (median),"
            f" {each.most_s} s at most"
        )
    print(
        f"{written.gangs} hostile gangs in {written.seconds} s: {written.conditions} conditions,"
        f" {written.events} Events, {written.bytes_a_gang:.0f} bytes a gang,"
        f" {written.bytes_a_second:.0f} bytes a second"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
