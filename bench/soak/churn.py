"""The churn: batches of gangs of every kind, created at a steady rate and deleted some seconds
later.

Invariant: the kinds, sizes and times follow from the seed; what the scheduler does with them
changes nothing. Pods are deleted by the batch, which is all that its namespace has, in one request
for each kind, so that making the load costs little. The last batches stay, for the comparison at
the end.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from http import HTTPStatus
from typing import Any

from control_plane import objects as make
from control_plane.api import Api, ApiError, Object

NAMESPACES = tuple(f"soak-{number:02}" for number in range(60))
"""More than there are batches at a time: whoever deletes a collection makes the API server list its
namespace.
"""
HIGH = "soak-high"
SIGS, X_K8S = "scheduling.sigs.k8s.io", "scheduling.x-k8s.io"
SIGS_LABEL = "pod-group.scheduling.sigs.k8s.io"
EVERY_S = 0.5
LIFE_S = 10.0
WORKERS, MOST_BEHIND = 16, 20
TRIES = 5
GPUS, WEIGHTS = (1, 2, 4), (7, 2, 1)
NEVER_FITS = 9
"""GPUs of a member that no node has."""


class Kinds:
    """Makes the objects of one batch; all of its dice are of one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._numbers = itertools.count()
        self._kinds: tuple[Callable[[str, str], list[Object]], ...] = (
            self._plain,
            self._group,
            self._group,
            self._of_sigs,
            self._annotated,
            self._non_strict,
            self._pair,
            self._urgent,
            self._too_large,
            self._short,
        )

    def batch(self, number: int, pods: int) -> list[Object]:
        """PodGroups and then pods, at least `pods` of these, in the batch's namespace."""
        namespace = NAMESPACES[number % len(NAMESPACES)]
        made: list[Object] = []
        while sum(body["kind"] == "Pod" for body in made) < pods:
            kind = self._rng.choice(self._kinds)
            made += kind(f"g{next(self._numbers)}", namespace)
        return sorted(made, key=lambda body: (body["kind"] == "Pod", body["apiVersion"]))

    def _size(self) -> int:
        return self._rng.randint(2, 8)

    def _pods(
        self, name: str, namespace: str, members: int, *, gpus: int = 0, **options: Any
    ) -> list[Object]:
        """A third of all gangs end by themselves; the others are deleted while they run."""
        gpus = gpus or self._rng.choices(GPUS, WEIGHTS)[0]
        run_s = round(self._rng.uniform(2, 6), 1) if self._rng.random() < 1 / 3 else None
        return [
            make.pod(f"{name}-{index}", namespace, gpus=gpus, run_seconds=run_s, **options)
            for index in range(members)
        ]

    def _plain(self, name: str, namespace: str) -> list[Object]:
        return self._pods(name, namespace, 1)

    def _group(self, name: str, namespace: str, **options: Any) -> list[Object]:
        members = self._size()
        pods = self._pods(name, namespace, members, gang=name, **options)
        return [make.pod_group(name, namespace, members), *pods]

    def _of_sigs(self, name: str, namespace: str) -> list[Object]:
        members = self._size()
        pods = self._pods(name, namespace, members, labels={SIGS_LABEL: name})
        return [make.pod_group(name, namespace, members - 1, api=SIGS), *pods]

    def _annotated(self, name: str, namespace: str, **options: Any) -> list[Object]:
        members = self._size()
        notes = make.gang_annotations(name, members, **options)
        return self._pods(name, namespace, members, annotations=notes)

    def _non_strict(self, name: str, namespace: str) -> list[Object]:
        return self._annotated(name, namespace, mode="NonStrict", waiting_time="5s")

    def _pair(self, name: str, namespace: str) -> list[Object]:
        """Two gangs that start together."""
        names = (f"{name}-a", f"{name}-b")
        groups = [f"{namespace}/{each}" for each in names]
        return [body for each in names for body in self._annotated(each, namespace, groups=groups)]

    def _urgent(self, name: str, namespace: str) -> list[Object]:
        """Of a priority that preempts."""
        return self._group(name, namespace, spec={"priorityClassName": HIGH})

    def _too_large(self, name: str, namespace: str) -> list[Object]:
        return [
            make.pod_group(name, namespace, 2),
            *self._pods(name, namespace, 2, gang=name, gpus=NEVER_FITS),
        ]

    def _short(self, name: str, namespace: str) -> list[Object]:
        """One member is missing."""
        return [make.pod_group(name, namespace, 3), *self._pods(name, namespace, 2, gang=name)]


class Churn:
    """Creates and deletes in threads while the `with` block runs; `created` counts pods.

    `behind` is how many batches are being created or deleted, or wait for it; a fast API server
    keeps it at a few.
    """

    def __init__(self, api: Api, *, rate: float, seed: int) -> None:
        self.created = 0
        self._api, self._rate = api, rate
        self._kinds = Kinds(seed)
        self._ends = threading.Event()
        self._working: set[Future[None]] = set()
        self._thread = threading.Thread(target=self._run, name="churn")
        self._failed: BaseException | None = None

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self.check()

    @property
    def behind(self) -> int:
        """See the class."""
        return len(self._working)

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        began_s = time.monotonic()
        try:
            with ThreadPoolExecutor(WORKERS) as pool:
                for number in itertools.count():
                    if self._ends.wait(began_s + number * EVERY_S - time.monotonic()):
                        return
                    self._submit(pool, number)
        except BaseException as error:
            self._failed = error

    def _submit(self, pool: ThreadPoolExecutor, number: int) -> None:
        """Create a batch, and delete the one whose time is over. Waits while too much is
        unfinished; raises faults.
        """
        finished, self._working = wait(self._working, timeout=0)
        if len(self._working) > MOST_BEHIND:
            finished, self._working = wait(self._working)
        for future in finished:
            future.result()
        wanted = round((number + 1) * EVERY_S * self._rate) - self.created
        bodies = self._kinds.batch(number, max(1, wanted))
        self.created += sum(body["kind"] == "Pod" for body in bodies)
        self._working.add(pool.submit(create_batch, self._api, bodies))
        if (old := number - round(LIFE_S / EVERY_S)) >= 0:
            self._working.add(pool.submit(delete_batch, self._api, old))


def create_batch(api: Api, bodies: Sequence[Object]) -> None:
    """Create objects one after the other, on one connection."""
    for body in bodies:
        ask(partial(api.post, api.path_of(body), body), done=HTTPStatus.CONFLICT)


def delete_batch(api: Api, number: int) -> None:
    """Delete the pods and PodGroups of a batch."""
    namespace = NAMESPACES[number % len(NAMESPACES)]
    collections = [f"/api/v1/namespaces/{namespace}/pods"]
    collections += [
        f"/apis/{group}/v1alpha1/namespaces/{namespace}/podgroups" for group in (X_K8S, SIGS)
    ]
    for collection in collections:
        ask(partial(api.call, "DELETE", collection, {"gracePeriodSeconds": 0}))


def ask(call: Callable[[], object], *, done: int = 0) -> None:
    """Call, and again while a busy API server does not answer in time, or only that it could not, a
    few times.

    After such an answer a refusal with the status `done` means that it was carried out
    nevertheless.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            call()
            return
        except TimeoutError:
            if not tries_left:
                raise
        except ApiError as error:
            if error.status == done and tries_left < TRIES - 1:
                return
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR or not tries_left:
                raise


def prepare(api: Api, nodes: int) -> None:
    """The namespaces, the PriorityClass and the nodes."""
    make.create_all(api, [make.namespace(name) for name in NAMESPACES])
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": HIGH},
        "value": 1000,
    }
    api.post(api.path_of(body), body)
    make.create_all(api, [make.node(f"n{index:03}", gpus=8) for index in range(nodes)])
