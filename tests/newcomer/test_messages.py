"""Every message of the page for newcomers, on a real API server: said as it stands there, and gone
with its cause.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_plane.daemon import ACCOUNT, COMMAND, NAMESPACE

from tests.newcomer.case import WITHIN_S, until
from tests.newcomer.cases import CASES
from tests.newcomer.page import PAGE, documented
from tests.newcomer.rights import as_in_the_manifests, without
from tests.newcomer.stage import Stage, stage

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Stage]:
    with stage() as built:
        yield built


@pytest.mark.parametrize("slug", CASES)
def test_what_the_page_says_is_said(slug: str, cluster: Stage) -> None:
    """E1, E2, E3: word for word on the pods, on the PodGroup and in Events; gone once the cause is
    gone.
    """
    case, wanted = CASES[slug], documented()[slug]
    try:
        cluster.play(case)
        try:
            took_s = until(lambda: cluster.said() == wanted, slug)
        except TimeoutError:
            assert cluster.said() == wanted
            raise
        print(f"said after {took_s:.2f} s")
        for deed in case.mend:
            deed(cluster.api)
        if case.mend:
            print(f"over after {cluster.wait_bound(case.starts):.2f} s (at most {WITHIN_S:g} s)")
    finally:
        cluster.clear()


REFUSALS = {
    "pods/binding": "The scheduler may not create pods/binding: apply manifests/rbac.yaml.",
    "podgroups/status": (
        "The scheduler may not patch podgroups/status in scheduling.x-k8s.io; "
        "patch podgroups/status in scheduling.sigs.k8s.io: apply manifests/rbac.yaml."
    ),
}


@pytest.mark.parametrize("resource", REFUSALS)
def test_a_start_without_a_right_is_refused_as_the_page_says(
    resource: str, cluster: Stage, tmp_path: Path
) -> None:
    """Exit code 2 and one sentence, which the page has."""
    kubeconfig = cluster.plane.write_kubeconfig(
        tmp_path / "config", token=cluster.plane.service_account_token(NAMESPACE, ACCOUNT)
    )
    without(resource)(cluster.api)
    try:
        ran = subprocess.run(
            [
                COMMAND,
                "run",
                "--health-port",
                "0",
                "--debug-port",
                "0",
                "--kubeconfig",
                str(kubeconfig),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        as_in_the_manifests(cluster.api)
    assert ran.returncode == 2
    assert REFUSALS[resource] in ran.stderr
    assert f"`{REFUSALS[resource]}`" in PAGE.read_text()
