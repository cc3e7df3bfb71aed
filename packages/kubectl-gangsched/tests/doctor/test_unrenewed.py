"""`doctor` says why nobody renews the Lease where that can be known, else what to read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gangsched.api.timestamps import format_timestamp
from tests.doctor_examples import LEASE, deployment, examine, lease, sound
from tests.fake_api import forbidden, listed, status, text

LEASES = LEASE.rpartition("/")[0]
PODS = "/api/v1/namespaces/gangsched-system/pods"
ACCOUNT = "/api/v1/namespaces/gangsched-system/serviceaccounts/gangsched"
LABEL = "app.kubernetes.io/name=gangsched"
LOGS = f"kubectl -n gangsched-system logs -l {LABEL} --prefix --tail=50"
CONFLICT = status(409, "AlreadyExists", 'leases.coordination.k8s.io "gangsched" already exists')


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look at a stale Lease comes at once."""
    monkeypatch.setattr("kubectl_gangsched.doctor.leader.LOOK_AGAIN_S", 0.0)


def at(ago_s: float) -> str:
    """A time of so long ago."""
    return format_timestamp(int(time.time() - ago_s))


def replica(name: str, ago_s: float = 600.0) -> dict[str, Any]:
    """A pod of gangsched that was created so long ago, with a sidecar."""
    metadata = {
        "name": name,
        "namespace": "gangsched-system",
        "creationTimestamp": at(ago_s),
        "labels": {"app.kubernetes.io/name": "gangsched"},
    }
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}, {"name": "proxy"}]}}


def account(ago_s: float) -> dict[str, Any]:
    """The ServiceAccount, created so long ago."""
    return {"metadata": {"name": "gangsched", "creationTimestamp": at(ago_s)}}


def log(*lines: tuple[str, float, str]) -> dict[str, Any]:
    """A log of these levels, ages and sentences, and of lines that nobody understands."""
    told = [
        json.dumps({"level": level, "timestamp": at(ago_s), "event": event})
        for level, ago_s, event in lines
    ]
    return text("\n".join(["Traceback (most recent call last):", "[]", *told, ""]))


def stopped(tmp_path: Path, changed: dict[str, Any], holder: str = "g-1_uid") -> tuple[str, str]:
    """What the doctor says of a Lease that was renewed 90 s ago, after that, and what to do."""
    answers = {
        **sound(),
        LEASE: lease(holder, 90.0),
        LEASES: CONFLICT,
        PODS: listed(replica("g-1"), replica("g-2")),
        ACCOUNT: account(700.0),
        **changed,
    }
    _, told, _ = examine(tmp_path, answers)
    (found,) = [finding for finding in told["findings"] if finding["check"] == "leader"]
    return found["sentence"].partition("no gang is scheduled.")[2].strip(), found["todo"]


def test_a_full_etcd_is_named(tmp_path: Path) -> None:
    """By the creation of the Lease that is there, which stores nothing."""
    full = status(500, "", "etcdserver: mvcc: database space exceeded")
    said, todo = stopped(tmp_path, {LEASES: full})
    assert said == (
        "etcd is full and takes no writes of anybody (etcdserver: mvcc: database space exceeded)."
    )
    assert "compact, defragment and disarm" in todo
    said, _ = stopped(tmp_path, {LEASES: status(504, "Timeout", "etcdserver: request timed out")})
    assert said == "The API server cannot store anything (etcdserver: request timed out)."


@pytest.mark.parametrize(
    "answer",
    [CONFLICT, forbidden("create", "leases"), status(400, "BadRequest", "webhook w denied it")],
)
def test_an_answer_that_is_not_of_etcd_says_nothing(tmp_path: Path, answer: Any) -> None:
    """The command that shows the logs remains."""
    assert stopped(tmp_path, {LEASES: answer}) == ("", LOGS)


def test_a_lease_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    """Only reviews of permissions are sent."""
    answers = {
        **sound(),
        LEASE: status(404, "NotFound", "x"),
        "/apis/apps/v1/deployments": listed(deployment("--leader-elect")),
    }
    _, told, fake = examine(tmp_path, answers)
    assert told["findings"][0]["check"] == "leader"
    assert not [path for path in fake.asked if path.startswith(f"POST {LEASES}")]


def test_a_missing_account_is_named(tmp_path: Path) -> None:
    """An answer of the API server, not of a proxy."""
    said, todo = stopped(tmp_path, {ACCOUNT: status(404, "NotFound", "x")})
    assert said.startswith("ServiceAccount gangsched-system/gangsched does not exist: all requests")
    assert todo.startswith("Apply the manifests again, then kubectl -n gangsched-system rollout")


def test_an_account_that_is_newer_than_the_replicas_is_named(tmp_path: Path) -> None:
    """Unless one is newer still, or the Lease was renewed later: then its token is accepted."""
    said, todo = stopped(tmp_path, {ACCOUNT: account(100.0)})
    assert said.startswith("ServiceAccount gangsched-system/gangsched was created again at ")
    assert "after g-1 started: the tokens of the one before are refused" in said
    assert todo == f"kubectl -n gangsched-system rollout restart deployment -l {LABEL}"
    newer = {ACCOUNT: account(100.0), PODS: listed(replica("g-1"), replica("g-2", 50.0))}
    assert stopped(tmp_path, newer) == ("", LOGS)
    assert stopped(tmp_path, {ACCOUNT: account(200.0)}) == ("", LOGS)


def test_the_log_of_the_holder_is_read_first(tmp_path: Path) -> None:
    """What it says of the Lease since the last renewal, before other warnings; of its first
    container.
    """
    refused = "Cannot use the lease gangsched-system/gangsched: Unauthorized; trying again."
    logs = {
        f"{PODS}/g-1/log": log(("warning", 500.0, "old"), ("info", 60.0, "fine")),
        f"{PODS}/g-2/log": log(
            ("warning", 80.0, refused), ("error", 50.0, "another"), ("info", 20.0, "fine")
        ),
    }
    said, todo = stopped(tmp_path, logs)
    assert said.startswith("The log of g-2 says at 20")
    assert said.endswith(f": {refused}")
    assert todo.startswith("Renew the token or the kubeconfig of the daemon")
    later = {**logs, f"{PODS}/g-1/log": log(("error", 40.0, "x" * 400))}
    said, todo = stopped(tmp_path, later)
    assert said.endswith(": " + "x" * 300)
    assert todo == "docs/runbook.md, GangschedNoLeader."


def test_what_is_read_is_the_end_of_the_first_container(tmp_path: Path) -> None:
    """Others have logs of their own, and a long log is not fetched whole."""
    answers = {**sound(), LEASE: lease("g-1_uid", 90.0), PODS: listed(replica("g-1"))}
    _, _, fake = examine(tmp_path, answers)
    assert f"GET {PODS}/g-1/log?container=main&tailLines=200" in fake.asked


def test_where_nothing_is_known_the_right_log_is_named(tmp_path: Path) -> None:
    """That of a holder that is no pod, of pods that cannot be listed, and of none."""
    _, todo = stopped(tmp_path, {}, holder="desk_uid")
    assert todo == f"{LOGS} (and the log of desk_uid, which is none of these pods)"
    assert stopped(tmp_path, {PODS: forbidden("list", "pods")}) == ("", LOGS)
    said, todo = stopped(tmp_path, {PODS: listed()})
    assert said == f"No pod of namespace gangsched-system has the label {LABEL}."
    assert todo == "Start one, or read the log of g-1_uid where it runs."
