"""Crowds: how long a pod of one namespace waits while a user of another one has ten thousand of
anything, on a real API server.

`python -m bench.crowds [--objects 10000] [--samples 40] [--case NAME ...]` gives a user the rights
of the namespace `crowd` and nothing else. In each case the user creates that many objects and then
changes them, 200 times a second as far as the API server goes along. Meanwhile a pod of the
namespace `quiet` is created every second; its wait goes from the moment when a watch shows it to
its bind, as it does before the crowd comes. Then the daemon is killed and started again, and at
last a standby takes over. What it does *not* show: the wait for the API server itself, of which
`created_s` and `shown_s` tell: with large objects and few cores its watches are half a minute late.
"""

from __future__ import annotations

import argparse
import itertools
import json
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following

CROWD, QUIET = "crowd", "quiet"
NODES = 20
WITHIN_S = 120.0
GOAL_S = 1.0
CHANGES_A_SECOND = 200
CHANGING_THREADS = 4
TEXT_BYTES = 200 << 10
LOOK_EVERY_S = 0.02
RULES = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": ["*"]},
    {"apiGroups": ["scheduling.x-k8s.io"], "resources": ["podgroups"], "verbs": ["*"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims", "resourceclaimtemplates"],
        "verbs": ["*"],
    },
]
PODS = f"/api/v1/namespaces/{CROWD}/pods"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{CROWD}/resourceclaims"
TEMPLATES = f"/apis/resource.k8s.io/v1/namespaces/{CROWD}/resourceclaimtemplates"
VOLUME_CLAIMS = f"/api/v1/namespaces/{CROWD}/persistentvolumeclaims"
GROUPS = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{CROWD}/podgroups"
SELECTORS = (
    "device.attributes['gpu.test'].all(key, device.attributes['gpu.test'][key] == '' || true)",
    "device.driver.matches('(a+)+b')",
    " || ".join(f"device.driver == 'x{number}'" for number in range(200)),
    "device.driver == 'gpu.test'",
)

Change = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds that pods of the quiet namespace waited, one after the other; `shown_s` is what a
    watch took to show one at most.
    """

    created_s: float
    shown_s: float
    median_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """One case."""

    case: str
    objects: int
    alone: Waits
    beside: Waits
    changes: int
    mib_before: int
    mib: int
    longest_plan_s: float
    after_restart_s: float
    after_failover_s: float


class Crowd:
    """The user's client, and what each case creates and changes."""

    def __init__(self, api: Api, objects: int) -> None:
        self.api = api
        self.objects = objects

    def create(self, bodies: Iterator[Object]) -> None:
        """Create objects in parallel."""
        make.create_all(self.api, bodies, connections=8)

    def annotate(self, path: str, **annotations: str) -> None:
        """Change annotations of one object."""
        self.api.patch(path, {"metadata": {"annotations": annotations}})

    # --- the cases -------------------------------------------------------------------------------

    def groups(self) -> Change:
        """PodGroups without pods, whose labels change."""
        self.create(make.pod_group(f"g{number}", CROWD, 2) for number in range(self.objects))

        def change(turn: int) -> None:
            path = f"{GROUPS}/g{turn % self.objects}"
            self.api.patch(path, {"metadata": {"labels": {"turn": str(turn)}}})

        return change

    def trees(self) -> Change:
        """Trees of four levels with 100 gangs, whose roots change."""
        roots = max(1, self.objects // 222)
        self.create(itertools.chain(self._parents(roots), self._leaves(roots)))

        def change(turn: int) -> None:
            least = {"gangsched.dev/min-children": str(1 + turn // roots % 5)}
            self.api.patch(f"{GROUPS}/r{turn % roots}", {"metadata": {"annotations": least}})

        return change

    def _parents(self, roots: int) -> Iterator[Object]:
        for root in range(roots):
            yield _child(f"r{root}", "", least=5)

            for middle in range(20):
                above = f"r{root}" if middle < 2 else f"r{root}-{middle % 2}"
                yield _child(f"r{root}-{middle}", above, least=1)

    def _leaves(self, roots: int) -> Iterator[Object]:
        names = [f"r{root}-{2 + leaf % 18}-{leaf}" for root in range(roots) for leaf in range(100)]
        for name in names:
            yield make.pod_group(name, CROWD, 1, annotations=_below(name.rpartition("-")[0]))

        for name in names:
            yield make.pod(name, CROWD, gang=name, gpus=9)

    def composite(self) -> Change:
        """One parent with a tenth as many children, each with a pod; the parent changes."""
        children = [f"c{number}" for number in range(self.objects // 10)]
        self.create(iter([_child("top", "", least=2)]))
        self.create(make.pod_group(name, CROWD, 1, annotations=_below("top")) for name in children)
        self.create(make.pod(name, CROWD, gang=name, gpus=9) for name in children)

        def change(turn: int) -> None:
            least = {"gangsched.dev/min-children": str(1 + turn % 5)}
            self.api.patch(f"{GROUPS}/top", {"metadata": {"annotations": least}})

        return change

    def lists(self) -> Change:
        """Gangs that each list another one."""
        self.create(self._listing(number, number + 1) for number in range(self.objects))

        def change(turn: int) -> None:
            number = turn % self.objects
            other = self._listing(number, number + turn)["metadata"]["annotations"]
            self.annotate(f"{PODS}/l{number}", **other)

        return change

    def _listing(self, number: int, other: int) -> Object:
        listed = [f"{CROWD}/l{number}", f"{CROWD}/l{other % self.objects}"]
        notes = make.gang_annotations(f"l{number}", 1, groups=listed)
        return make.pod(f"l{number}", CROWD, gpus=9, annotations=notes)

    def claims(self) -> Change:
        """ResourceClaims with selectors that are dear, used by a tenth as many pods, and recreated
        all the time.
        """
        self.create(_claim(number) for number in range(self.objects))
        self.create(_claiming(number) for number in range(self.objects // 10))

        def change(turn: int) -> None:
            number = turn % self.objects
            self.api.delete(f"{CLAIMS}/c{number}")
            self.api.post(CLAIMS, _claim(number))

        return change

    def volumes(self) -> Change:
        """PersistentVolumeClaims; a tenth as many pods use one of them, which changes."""
        self.create(_volume_claim(number) for number in range(self.objects))
        self.create(_mounting(number) for number in range(self.objects // 10))

        def change(turn: int) -> None:
            node = {"volume.kubernetes.io/selected-node": f"n{turn % NODES}"}
            self.annotate(f"{VOLUME_CLAIMS}/v0", **node)

        return change

    def labels(self) -> Change:
        """One pod whose labels change."""
        self.create(iter([make.pod("labels", CROWD, gpus=9)]))

        def change(turn: int) -> None:
            self.api.patch(f"{PODS}/labels", {"metadata": {"labels": {"turn": str(turn)}}})

        return change

    def placed(self) -> Change:
        """Pods of another scheduler that name their node, deleted and created."""
        self.create(_placed(number) for number in range(self.objects // 10))

        def change(turn: int) -> None:
            number = turn % (self.objects // 10)
            self.api.delete(f"{PODS}/p{number}")
            self.api.post(PODS, _placed(number))

        return change

    def churn(self) -> Change:
        """Gangs that do not fit, deleted and created."""
        self.create(self._gangs(range(self.objects // 10)))

        def change(turn: int) -> None:
            number = turn % (self.objects // 10)
            self.api.delete(f"{PODS}/churn{number}")
            self.api.delete(f"{GROUPS}/churn{number}")

            for body in self._gangs([number]):
                self.api.post(self.api.path_of(body), body)

        return change

    def cycles(self) -> Change:
        """PodGroups of which each is the parent of the next, and the last one that of the first; a
        tenth as many pods.
        """
        names = [f"y{number}" for number in range(self.objects)]
        above = dict(zip(names, [names[-1], *names], strict=False))
        self.create(_child(name, above[name], least=1) for name in names)
        some = range(self.objects // 10)
        self.create(make.pod(f"y{number}", CROWD, gang=f"y{number}", gpus=9) for number in some)

        def change(turn: int) -> None:
            name = f"y{turn % self.objects}"
            parent = _below(above[name] if turn // self.objects % 2 else "nobody")
            self.api.patch(f"{GROUPS}/{name}", {"metadata": {"annotations": parent}})

        return change

    def spreads(self) -> Change:
        """A tenth as many pods with 64 topology spread constraints each, the most that are read;
        deleted and created.
        """
        some = range(self.objects // 10)
        self.create(_spread(number) for number in some)

        def change(turn: int) -> None:
            number = turn % (self.objects // 10)
            self.api.delete(f"{PODS}/s{number}")
            self.api.post(PODS, _spread(number))

        return change

    def texts(self) -> Change:
        """A twentieth as many PodGroups and pods with annotations of 200 KiB, which change."""
        text = {"example.com/text": "x" * TEXT_BYTES}
        names = [f"t{number}" for number in range(self.objects // 20)]
        self.create(make.pod_group(name, CROWD, 1, annotations=text) for name in names)
        self.create(make.pod(name, CROWD, gang=name, gpus=9, annotations=text) for name in names)

        def change(turn: int) -> None:
            name = names[turn % len(names)]
            self.annotate(f"{GROUPS if turn % 2 else PODS}/{name}", turn=str(turn))

        return change

    def templates(self) -> Change:
        """Claims of pods that nobody makes out of their templates, and templates that change."""
        self.create(_template(number) for number in range(self.objects))
        some = range(self.objects // 10)
        self.create(_templated(number) for number in some)

        def change(turn: int) -> None:
            self.annotate(f"{TEMPLATES}/a{turn % self.objects}", turn=str(turn))
            self.annotate(f"{PODS}/a{turn % len(some)}", turn=str(turn))

        return change

    def _gangs(self, numbers: Sequence[int]) -> Iterator[Object]:
        for number in numbers:
            yield make.pod_group(f"churn{number}", CROWD, 1)

        for number in numbers:
            yield make.pod(f"churn{number}", CROWD, gang=f"churn{number}", gpus=9)


CASES = (
    Crowd.groups,
    Crowd.trees,
    Crowd.composite,
    Crowd.lists,
    Crowd.claims,
    Crowd.volumes,
    Crowd.labels,
    Crowd.placed,
    Crowd.churn,
    Crowd.cycles,
    Crowd.spreads,
    Crowd.texts,
    Crowd.templates,
)


def _below(parent: str) -> dict[str, str]:
    return {"gangsched.dev/parent": parent} if parent else {}


def _child(name: str, parent: str, *, least: int) -> Object:
    """A PodGroup that is a parent, and perhaps a child."""
    notes = {"gangsched.dev/min-children": str(least), **_below(parent)}
    return make.pod_group(name, CROWD, annotations=notes)


def _claim(number: int) -> Object:
    selector = {"cel": {"expression": SELECTORS[number % len(SELECTORS)]}}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "selectors": [selector]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"c{number}", "namespace": CROWD},
        "spec": {"devices": {"requests": [request]}},
    }


def _template(number: int) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": f"a{number}", "namespace": CROWD},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def _templated(number: int) -> Object:
    named = [{"name": "gpu", "resourceClaimTemplateName": f"a{number}"}]
    return make.pod(f"a{number}", CROWD, spec={"resourceClaims": named})


def _spread(number: int) -> Object:
    constraints = [
        {
            "topologyKey": f"example.com/key-{key}",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule" if key % 2 else "ScheduleAnyway",
            "labelSelector": {"matchLabels": {f"l{number}": ""}},
        }
        for key in range(64)
    ]
    return make.pod(f"s{number}", CROWD, spec={"topologySpreadConstraints": constraints})


def _claiming(number: int) -> Object:
    named = [{"name": "gpu", "resourceClaimName": f"c{number}"}]
    body = make.pod(f"d{number}", CROWD, spec={"resourceClaims": named})
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return body


def _volume_claim(number: int) -> Object:
    resources = {"requests": {"storage": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"v{number}", "namespace": CROWD},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "none",
            "resources": resources,
        },
    }


def _mounting(number: int) -> Object:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "v0"}}
    return make.pod(f"m{number}", CROWD, spec={"volumes": [volume]})


def _placed(number: int) -> Object:
    where = {"nodeName": f"n{number % NODES}"}
    return make.pod(f"p{number}", CROWD, cpu="1m", memory="1Mi", scheduler_name="other", spec=where)


# --- the measurement -----------------------------------------------------------------------------


def measure(
    case: Callable[[Crowd], Change],
    *,
    objects: int,
    samples: int,
) -> Result:
    """One case, on a control plane of its own."""
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane())
        api = stack.enter_context(closing(Api.of(plane)))
        apply_manifests(api)
        crowd = Crowd(stack.enter_context(closing(tenant(plane, api))), objects)
        make.create_all(api, [make.namespace(QUIET), *_cluster()])

        quiet = f"/api/v1/namespaces/{QUIET}/pods"
        pods = stack.enter_context(Following(api, quiet))
        options = {"ready_timeout_s": WITHIN_S, "extra_args": ("--devices", "all")}
        daemons = [Daemon(plane, **options) for _ in range(2)]  # type: ignore[arg-type]
        for daemon in daemons:
            # what is left to be written about the crowd is not waited for
            stack.callback(daemon.kill)

        first, standby = daemons
        first.start()
        alone = _waits("alone", api, pods, samples)
        before = _mib(first)
        change = case(crowd)
        print(f"  created; {_mib(first)} MiB", file=sys.stderr, flush=True)

        with changing(change) as changes:
            beside = _waits("beside", api, pods, samples)
            mib = _mib(first)
            longest = _longest_plan_s(first)
            first.kill()
            first.start()
            after_restart = _waits("restart", api, pods, 1).p99_s
            standby.start()
            first.kill()
            after_failover = _waits("failover", api, pods, 1).p99_s

    name = case.__name__
    return Result(
        name,
        objects,
        alone,
        beside,
        changes[0],
        before,
        mib,
        longest,
        after_restart,
        after_failover,
    )


def tenant(plane: ControlPlane, api: Api) -> Api:
    """Who may do everything with some kinds in one namespace, and nothing else."""
    metadata = {"name": CROWD, "namespace": CROWD}
    core = f"/api/v1/namespaces/{CROWD}"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{CROWD}"
    version = "rbac.authorization.k8s.io/v1"
    api.post("/api/v1/namespaces", make.namespace(CROWD))

    api.post(
        f"{core}/serviceaccounts",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
    )
    api.post(
        f"{rbac}/roles",
        {"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": RULES},
    )
    subject = {"kind": "ServiceAccount", "name": CROWD, "namespace": CROWD}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": CROWD}
    binding = {"apiVersion": version, "kind": "RoleBinding", "metadata": metadata}
    api.post(f"{rbac}/rolebindings", {**binding, "subjects": [subject], "roleRef": role})

    context = ssl.create_default_context(cafile=str(plane.ca_path))
    return Api(plane.url, context, token=plane.service_account_token(CROWD, CROWD))


def _cluster() -> Iterator[Object]:
    """Nodes, and devices of a class."""
    for number in range(NODES):
        yield make.node(f"n{number}", pods=1_000)

    for number in range(NODES):
        devices = [
            {"name": f"d{index}", "attributes": {"model": {"string": "x"}}} for index in range(8)
        ]
        pool = {"name": f"n{number}", "generation": 1, "resourceSliceCount": 1}
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"n{number}"},
            "spec": {
                "driver": "gpu.test",
                "nodeName": f"n{number}",
                "pool": pool,
                "devices": devices,
            },
        }

    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.test'"}}]},
    }


def _waits(case: str, api: Api, pods: Following, samples: int) -> Waits:
    """Create a pod of the quiet namespace every second; how long each waits to be bound."""
    created: list[float] = []
    shown: list[float] = []
    waited: list[float] = []
    for number in range(samples):
        began_s = time.monotonic()
        name = f"{case}-{number}"
        body = make.pod(name, QUIET, cpu="1m", memory="1Mi")
        api.post(f"/api/v1/namespaces/{QUIET}/pods", body)
        stored_s = time.monotonic()

        pods.wait_for(
            lambda items, name=name: name in _names_of(items),  # type: ignore[misc]
            within_s=WITHIN_S,
            what=f"{name} is shown",
        )
        shown_s = time.monotonic()
        bound_s = _bound_s(api, f"/api/v1/namespaces/{QUIET}/pods/{name}")
        created.append(stored_s - began_s)
        shown.append(shown_s - stored_s)
        waited.append(bound_s - shown_s)
        api.delete(f"/api/v1/namespaces/{QUIET}/pods/{name}")
        time.sleep(max(0.0, 1.0 - (time.monotonic() - began_s)))

    waited.sort()
    p99 = waited[min(len(waited) - 1, int(0.99 * len(waited)))]
    median = statistics.median(waited)
    return Waits(
        created_s=round(statistics.median(created), 3),
        shown_s=round(max(shown), 3),
        median_s=round(median, 3),
        p99_s=round(p99, 3),
    )


def _bound_s(api: Api, path: str) -> float:
    """When a pod is bound: read and not watched, since a watch may be late."""
    deadline_s = time.monotonic() + WITHIN_S
    while not api.get(path)["spec"].get("nodeName"):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{path} is not bound")
        time.sleep(LOOK_EVERY_S)

    return time.monotonic()


def _names_of(pods: Mapping[str, Object]) -> set[str]:
    """Names of pods, by uid."""
    return {pod["metadata"]["name"] for pod in pods.values()}


@contextmanager
def changing(change: Change) -> Iterator[list[int]]:
    """Change the crowd's objects all the time; how often is known afterwards."""
    ends = threading.Event()
    turns = itertools.count()
    number = [0]

    def go_on() -> None:
        while not ends.wait(CHANGING_THREADS / CHANGES_A_SECOND):
            turn = next(turns)
            number[0] = max(number[0], turn)
            try:
                change(turn)
            except ApiError as error:  # two threads may change one object
                if error.status not in {404, 409, 422}:
                    print(f"  {error}", file=sys.stderr, flush=True)
                    ends.wait(0.1)

    with ThreadPoolExecutor(CHANGING_THREADS) as pool:
        going = [pool.submit(go_on) for _ in range(CHANGING_THREADS)]
        try:
            yield number
        finally:
            ends.set()

    for each in going:
        each.result()


def _mib(daemon: Daemon) -> int:
    """Resident memory of the daemon."""
    with open(f"/proc/{daemon.pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4 // 1_024


def _longest_plan_s(daemon: Daemon) -> float:
    """The upper bound of the bucket that holds the longest plan."""
    buckets = []
    for name, value in daemon.metrics().items():
        if name.startswith("gangsched_cycle_seconds_bucket"):
            edge = name.partition('le="')[2].partition('"')[0]
            buckets.append((float(edge.replace("+Inf", "inf")), value))

    buckets.sort()
    most = buckets[-1][1] if buckets else 0.0
    return next((edge for edge, value in buckets if value == most), 0.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a pod waited longer than the goal beside a crowd."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [case.__name__ for case in CASES]
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--case", nargs="+", choices=names, default=names)
    options = parser.parse_args(arguments)

    missed = []
    for case in CASES:
        if case.__name__ not in options.case:
            continue

        result = measure(case, objects=options.objects, samples=options.samples)
        print(json.dumps(asdict(result)), flush=True)
        if result.beside.p99_s > GOAL_S:
            missed.append(result.case)

    print(f"longer than {GOAL_S:g} s beside: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
