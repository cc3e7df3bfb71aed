"""Helm on real nodes: install, upgrade, uninstall, as docs/install.md says."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_plane.errors import ControlPlaneError

from tests.real_node.stage import HELM_CHART, NAMESPACE, Stage, gang, step

pytestmark = pytest.mark.real_node

ROOT = Path(__file__).resolve().parents[2]
INSTALL = ("upgrade", "--install", "gangsched", str(HELM_CHART), "--namespace", NAMESPACE)
WAIT = ("--create-namespace", "--wait", "--timeout", "120s")


def helm(stage: Stage, *words: str | Path) -> None:
    """Run Helm; a failure says how the replicas are, too."""
    try:
        stage.cluster.helm(*words, within_s=150.0)
    except ControlPlaneError as error:
        raise AssertionError(f"{error}\n{stage.told()}") from error


def test_helm(stage: Stage) -> None:
    """Pods that wait over the change of the installation are placed by the new one."""
    with step("uninstall what kubectl installed"):
        stage.cluster.kubectl(
            "delete", "apiservice", "v1alpha1.visibility.gangsched.dev", "--ignore-not-found"
        )
        spared = ("-l", "app.kubernetes.io/component!=definition")
        stage.cluster.kubectl(
            "delete", "-f", ROOT / "manifests/install.yaml", "--ignore-not-found", *spared
        )
        stage.apply(*gang("between", 2))
    with step("helm upgrade --install --wait"):
        helm(stage, *INSTALL, *WAIT)
        stage.until(lambda: len(stage.running("between-")) == 2, "the gang that waited")
    with step("helm test"):
        helm(stage, "test", "gangsched", "--namespace", NAMESPACE, "--timeout", "60s")
    with step("helm upgrade with another setting and without the API of gangs"):
        other = ("--set", "settings.log_format=console", "--set", "visibility.enabled=false")
        helm(stage, *INSTALL, *WAIT, *other)
        stage.apply(*gang("upgraded", 2))
        stage.until(lambda: len(stage.running("upgraded-")) == 2, "a gang after the upgrade")
    with step("helm uninstall"):
        helm(stage, "uninstall", "gangsched", "--namespace", NAMESPACE, "--wait")
        assert len(stage.running("upgraded-")) == 2, "an uninstall ends no work"
        stage.until(lambda: not stage.pods(namespace=NAMESPACE), "no replicas")
    stage.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")
