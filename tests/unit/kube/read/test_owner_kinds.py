"""Owners of gangs as numbers: what of a Job or a StatefulSet is read (semantics O3, O7)."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest

from gangsched.kube.ports import silent
from gangsched.kube.read import resources
from gangsched.kube.read.store import Store
from gangsched.model.owners import JobOwner, StatefulSetOwner
from gangsched.model.protocol import Gone, Message, Replaced, Unread

BYTES_AN_OWNER = 500


def job(name: str = "train", *, status: dict[str, Any] | None = None, **spec: Any) -> Any:
    """A Job with a pod template that is not read."""
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"{name}-uid"},
        "spec": {"template": {"spec": {"containers": [{"name": "x" * 1_000}]}}, **spec},
        "status": status or {},
    }


def read(resource: Any, body: Any) -> Any:
    """The object as the store keeps it."""
    return resource.convert(resource.item.decode(json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("spec", "status", "minimum", "succeeded"),
    [
        ({}, {}, 1, 0),
        ({"parallelism": 4}, {}, 4, 0),
        ({"parallelism": 4}, {"succeeded": 2}, 4, 0),
        ({"parallelism": 4, "completions": 5}, {}, 4, 0),
        ({"parallelism": 4, "completions": 5}, {"succeeded": 4}, 1, 4),
        ({"parallelism": 4, "completions": 2}, {}, 2, 0),
        ({"parallelism": 0, "completions": 2}, {}, 0, 0),
        ({"parallelism": None, "completions": None}, {}, 1, 0),
        ({"parallelism": 2, "completions": 2}, {"succeeded": 9}, 0, 9),
    ],
)
def test_the_pods_of_a_job_at_a_time(
    spec: dict[str, Any], status: dict[str, Any], minimum: int, succeeded: int
) -> None:
    """O3: parallelism, at the end the completions that are left."""
    found = read(resources.JOBS, job(status=status, **spec))
    assert (found.minimum, found.succeeded) == (minimum, succeeded)
    assert (found.uid, found.namespace, found.name) == ("train-uid", "ml", "train")


def test_a_suspended_job_and_its_annotations() -> None:
    """O2, O3: only keys of gangs are kept."""
    body = job(suspend=True)
    body["metadata"]["annotations"] = {"note": "x", "gangsched.dev/topology": "rack"}
    found = read(resources.JOBS, body)
    assert found.suspended
    assert found.gang_metadata == (("gangsched.dev/topology", "rack"),)


@pytest.mark.parametrize(("policy", "one_by_one"), [("Parallel", False), ("OrderedReady", True)])
def test_the_replicas_of_a_stateful_set(policy: str, one_by_one: bool) -> None:
    """O3: and whether it creates them one by one."""
    body = {
        "metadata": {"name": "web", "namespace": "ml", "uid": "u"},
        "spec": {"replicas": 3, "podManagementPolicy": policy},
    }
    found = read(resources.STATEFUL_SETS, body)
    assert found == StatefulSetOwner(
        uid="u", namespace="ml", name="web", minimum=3, one_by_one=one_by_one
    )


def test_an_owner_that_cannot_be_read_keeps_its_last_version() -> None:
    """I8: others are read as usual."""
    told: list[Message] = []
    warned: list[str] = []
    store = Store(resources.JOBS, told.append, warned.append)
    store.add_page(json.dumps({"metadata": {"resourceVersion": "1"}, "items": [job()]}).encode())
    bad = job(parallelism="many")
    store.take_line(json.dumps({"type": "MODIFIED", "object": bad}).encode())
    assert "One of the jobs, ml/train, cannot be understood" in warned[0]
    kept = store.get("train-uid")
    assert kept is not None
    assert kept.minimum == 1


def test_what_was_read_is_told_after_the_right_is_gone() -> None:
    """O7: to a daemon that begins then, too."""
    told: list[Message] = []
    store = Store(resources.JOBS, told.append, silent)
    store.add_page(json.dumps({"metadata": {"resourceVersion": "1"}, "items": [job()]}).encode())
    store.refused(forbidden=True)
    listed, unread = store.known()
    assert isinstance(listed, Replaced)
    assert [owner.name for owner in listed.items] == ["train"]
    assert unread == Unread(JobOwner)
    store.take_line(json.dumps({"type": "DELETED", "object": job()}).encode())
    assert told[-1] == Gone(JobOwner, "train-uid")


def test_ten_thousand_jobs_take_five_megabytes_at_most() -> None:
    """O8: an owner is a few numbers, whatever its template holds."""
    number = 10_000
    items = [job(f"train-{index}", parallelism=10, completions=10) for index in range(number)]
    page = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
    del items
    store = Store(resources.JOBS, lambda message: None, silent)
    tracemalloc.start()
    store.add_page(page)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < number * BYTES_AN_OWNER, used
    assert sys.getsizeof(next(iter(store.items()))[1]) < 200
