"""Attacks on the API of gangs: bystanders notice nothing, and soon after the end all is as before
(0044).

`make api-attacks ATTACK_S=60` runs the long form, prints the figures, and holds them to the goals;
the short form allows `SLACK` times as much, since the machine does other things as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from urllib.parse import urlsplit

import pytest
from control_plane import objects as make
from control_plane.api import Api

from tests.e2e.visibility.attackers import KINDS, Target
from tests.e2e.visibility.bystanders import Bystanders
from tests.e2e.visibility.conftest import Served, plane_that_serves

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

LONG_S = float(os.environ.get("ATTACK_S", "0"))
ATTACK_S, QUIET_S, AFTER_S, SLACK, NODES = (
    (LONG_S, 15.0, 5.0, 1.0, 500) if LONG_S else (4.0, 2.0, 2.0, 3.0, 50)
)
GOALS = {"list_p99_ms": 500.0, "bind_p99_ms": 200.0, "livez_max_ms": 100.0, "renewal_gap_s": 3.0}
ROLES = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A daemon that renews a Lease."""
    with plane_that_serves(GANGSCHED_LEADER_ELECT="true") as served:
        yield served


@pytest.fixture(scope="module")
def attacked(served: Served) -> Iterator[tuple[Target, Bystanders]]:
    """mallory may edit a namespace, bob may view another with gangs that wait."""
    api = Api.of(served.plane)
    for user, role in (("mallory", "edit"), ("bob", "view")):
        api.post("/api/v1/namespaces", make.namespace(user))
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
        body = {"metadata": {"name": user}, "roleRef": reference, "subjects": subjects}
        api.post(f"{ROLES}/namespaces/{user}/rolebindings", body)
    make.create_all(
        api, [make.node(f"n{number}", gpus=8, labels=_labels(number)) for number in range(NODES)]
    )
    for number in range(20):
        make.create_all(api, make.gang(f"waits-{number}", "bob", members=3, gpus=64))
    pki = served.plane.pki
    target = Target(
        served.port, urlsplit(served.plane.url).port or 0, str(pki.admin_cert), str(pki.admin_key)
    )
    yield target, Bystanders(served, target, api)
    api.close()


def _labels(number: int) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": f"n{number}",
        "topology.kubernetes.io/zone": f"z{number % 10}",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_bystanders_notice_nothing(attacked: tuple[Target, Bystanders], kind: str) -> None:
    """Another tenant's lists, binds, /livez and the Lease, before, during and five seconds after an
    attack.
    """
    target, bystanders = attacked
    with bystanders.watch() as before:
        time.sleep(QUIET_S)
    argv = [sys.executable, "-m", "tests.e2e.visibility.attackers", kind, str(ATTACK_S)]
    environment = os.environ | {"ATTACKED": json.dumps(asdict(target))}
    attacker = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(1.0)  # until it has begun; what it does sooner is seen as well
        with bystanders.watch() as during:
            answers = attacker.communicate(timeout=ATTACK_S + 60.0)[0]
    finally:
        attacker.kill()
        attacker.wait()
    time.sleep(AFTER_S)
    with bystanders.watch() as after:
        time.sleep(QUIET_S)
    found = {
        "kind": kind,
        "answers": json.loads(answers),
        "during": during.figures(),
        "after": after.figures(),
    }
    print(json.dumps(found | {"before": before.figures()}))
    assert during.figures()["renewals"] >= (ATTACK_S - 2.0) / 3.0, found
    assert during.figures()["refused_lists"] == after.figures()["refused_lists"] == 0, found
    for seen in (during.figures(), after.figures()):
        assert {
            name: seen[name] for name, goal in GOALS.items() if seen[name] > goal * SLACK
        } == {}, found
