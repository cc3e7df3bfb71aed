"""Crowds of owners: how long a pod of one namespace waits while another one has 10,000 Jobs whose
gangs are asked for.

`python -m bench.crowd_of_owners [--owners 10000] [--samples 20]` runs two replicas on a
control plane of its own. The namespace `crowd` asks for the gangs of owners: half of its Jobs lack
room, half lack a pod. Each second a pod of the namespace `quiet` is created: alone, while the crowd
is told why it waits, beside it at rest, while each second Jobs of the crowd change their size, are
created again under one name, and go without their pods, after the permission to read Jobs was taken
away, and after the leader was killed (the standby then waits for the Lease). It has the resident
memory of the leader, and how long a process needs that starts beside the crowd.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import ROOT, apply_manifests, apply_yaml
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of

CROWD, QUIET = "crowd", "quiet"
QUIET_PODS = f"/api/v1/namespaces/{QUIET}/pods"
CROWD_PODS = f"/api/v1/namespaces/{CROWD}/pods"
JOBS = f"/apis/batch/v1/namespaces/{CROWD}/jobs"
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gangsched-owners"
WITHIN_S = 180.0
EVERY_S = 1.0
GOAL_S = 1.0
IDLE_S, RESTS, RESTS_WITHIN_S = 0.1, 3, 300.0
"""The leader is at rest if it uses less CPU a second than this, in so many seconds."""
CHANGES = 10
"""Jobs a second that change in each way."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds from the creation of a pod until it is bound, of so many, one each second; resident
    memory of the leader at the end.
    """

    case: str
    samples: int
    median_s: float
    most_s: float
    memory_mib: float


@dataclass(slots=True)
class Replicas:
    """A leader and a standby."""

    plane: ControlPlane
    stack: ExitStack
    leader: Daemon
    standby: Daemon

    def memory_mib(self) -> float:
        """Resident memory of the leader."""
        for line in Path(f"/proc/{self.leader.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return round(int(line.split()[1]) / 1024, 1)
        return 0.0

    def rest(self) -> float:
        """Wait until the leader has next to nothing to do; the seconds that it took."""
        began_s = time.monotonic()
        idle = 0
        while idle < RESTS and time.monotonic() - began_s < RESTS_WITHIN_S:
            before_s = self._cpu_s()
            time.sleep(1.0)
            idle = idle + 1 if self._cpu_s() - before_s < IDLE_S else 0
        return round(time.monotonic() - began_s, 1)

    def _cpu_s(self) -> float:
        """CPU seconds that the leader has used."""
        fields = Path(f"/proc/{self.leader.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill_leader(self) -> None:
        """The standby is the next leader."""
        self.leader.kill()
        self.leader, self.standby = self.standby, self.leader

    def start_again(self) -> float:
        """Start the one that was killed; the seconds until it is ready."""
        began_s = time.monotonic()
        self.standby = replica(self.plane, "again", self.stack)
        return round(time.monotonic() - began_s, 1)


def replica(plane: ControlPlane, name: str, stack: ExitStack) -> Daemon:
    """One of the replicas, once it is ready."""
    daemon = Daemon(
        plane,
        extra_args=["--leader-elect"],
        log_path=plane.logs / f"replica-{name}.log",
        ready_timeout_s=WITHIN_S,
    )
    stack.callback(daemon.kill)
    daemon.start()
    return daemon


def measure(owners: int, samples: int) -> Iterator[dict[str, object]]:
    """All cases, one after the other."""
    with ControlPlane() as plane, closing(Api.of(plane)) as api, ExitStack() as stack:
        apply_manifests(api)
        apply_yaml(api, ROOT / "manifests" / "rbac-owners.yaml")
        crowd = make.namespace(CROWD)
        crowd["metadata"]["labels"] = {"gangsched.dev/gang": "owner"}
        make.create_all(api, [crowd, make.namespace(QUIET), make.node("n", gpus=8)])
        pods = stack.enter_context(Following(api, QUIET_PODS))
        leader = replica(plane, "a", stack)
        replicas = Replicas(plane, stack, leader, replica(plane, "b", stack))

        def case(name: str) -> dict[str, object]:
            return asdict(waits(name, api, pods, samples, replicas))

        bind_one(api, pods, "first")  # one of them leads from now on
        yield case("alone")
        began_s = time.monotonic()
        create(api, range(owners))
        yield {"case": "the crowd was created", "seconds": round(time.monotonic() - began_s, 1)}
        yield case("while the crowd is told why it waits")
        yield {"case": "the leader is at rest", "seconds": replicas.rest()}
        yield case("beside the crowd")
        with changing(api, owners):
            yield case("while its Jobs change")

        api.delete(BINDING)
        yield case("after the permission was taken away")
        apply_yaml(api, ROOT / "manifests" / "rbac-owners.yaml")

        replicas.kill_leader()
        yield {"case": "the standby binds", "seconds": bind_one(api, pods, "taken-over")}
        yield case("after the standby has taken over")
        yield {"case": "another one is ready", "seconds": replicas.start_again()}


def waits(case: str, api: Api, pods: Following, samples: int, replicas: Replicas) -> Waits:
    """Bind pods, one each second."""
    took = []
    for number in range(samples):
        took.append(bind_one(api, pods, f"{case.rsplit(maxsplit=1)[-1].lower()}-{number}"))
        time.sleep(max(0.0, EVERY_S - took[-1]))
    return Waits(
        case,
        samples,
        round(statistics.median(took), 3),
        round(max(took), 3),
        replicas.memory_mib(),
    )


def bind_one(api: Api, pods: Following, name: str) -> float:
    """Seconds until a pod is bound; it is deleted then."""
    began_s = time.monotonic()
    api.post(QUIET_PODS, make.pod(name, QUIET, gpus=1))
    pods.wait_for(lambda items: name in nodes_of(items), within_s=WITHIN_S, what=name)
    took_s = time.monotonic() - began_s
    api.delete(f"{QUIET_PODS}/{name}")
    return round(took_s, 3)


# --- the crowd ------------------------------------------------------------------------------------


def create(api: Api, numbers: Iterable[int]) -> None:
    """Create Jobs with their pods, as their controller would: of every other one a pod is missing,
    and no node has room for those of the others.
    """
    numbers = list(numbers)
    jobs = make.create_all(api, (job(number) for number in numbers))
    make.create_all(api, itertools.chain.from_iterable(map(pods_of, numbers, jobs)))


def job(number: int) -> Object:
    """A Job of two pods at a time."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"j{number:05}", "namespace": CROWD},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {"spec": make.pod("unused", CROWD, gpus=16)["spec"]},
        },
    }


def pods_of(number: int, stored: Object) -> Iterator[Object]:
    """The pods of a Job."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": stored["metadata"]["name"],
        "uid": stored["metadata"]["uid"],
        "controller": True,
    }
    for index in range(1 + number % 2):
        pod = make.pod(f"{stored['metadata']['name']}-{index}", CROWD, gpus=16)
        pod["metadata"]["ownerReferences"] = [owner]
        yield pod


@contextmanager
def changing(api: Api, owners: int) -> Iterator[None]:
    """Each second some Jobs change their size, some are created again, and some go."""
    ends = threading.Event()
    random = Random(0)

    def change() -> None:
        while not ends.wait(EVERY_S):
            for number in random.sample(range(owners), CHANGES):
                size = {"parallelism": random.randrange(1, 9)}
                try_to(lambda: api.patch(f"{JOBS}/j{number:05}", {"spec": size}))  # noqa: B023
            for number in random.sample(range(owners), CHANGES):
                try_to(lambda: api.delete(f"{JOBS}/j{number:05}"))  # noqa: B023
            for number in random.sample(range(owners), CHANGES):
                create_again(api, number)

    thread = threading.Thread(target=change, name="changing")
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def create_again(api: Api, number: int) -> None:
    """A Job goes with its pods, and one of its name comes."""
    try_to(lambda: api.delete(f"{JOBS}/j{number:05}"))
    for index in range(2):
        try_to(lambda: api.delete(f"{CROWD_PODS}/j{number:05}-{index}"))  # noqa: B023
    try_to(lambda: create(api, [number]))


def try_to(act: Callable[[], object]) -> None:
    """Ignore that an object is gone, or there already."""
    try:
        act()
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 if a pod has waited for longer than `GOAL_S`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--owners", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=20)
    asked = parser.parse_args(arguments)
    is_slow = False
    for result in measure(asked.owners, asked.samples):
        print(json.dumps(result), flush=True)
        most_s = result.get("most_s", 0.0)
        is_slow = is_slow or (isinstance(most_s, float) and most_s > GOAL_S)
    return 1 if is_slow else 0


if __name__ == "__main__":
    sys.exit(main())
