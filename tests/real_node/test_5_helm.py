"""Helm on real nodes: install, upgrade, uninstall, as docs/install.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_node.stage import NAMESPACE, Stage, gang, step

pytestmark = pytest.mark.real_node

ROOT = Path(__file__).resolve().parents[2]
INSTALL = ("upgrade", "--install", "gangsched", str(ROOT / "charts/gangsched"), "--namespace", NAMESPACE)
WAIT = ("--create-namespace", "--wait", "--timeout", "120s")


def test_helm(stage: Stage) -> None:
    """Pods that wait over the change of the installation are placed by the new one."""
    with step("uninstall what kubectl installed"):
        stage.cluster.kubectl("delete", "apiservice", "v1alpha1.visibility.gangsched.dev", "--ignore-not-found")
        spared = ("-l", "app.kubernetes.io/component!=definition")
        stage.cluster.kubectl("delete", "-k", ROOT / "overlays/visibility", "--ignore-not-found", *spared)
        stage.apply(*gang("between", 2))
    with step("helm upgrade --install --wait"):
        stage.cluster.helm(*INSTALL, *WAIT, within_s=150.0)
        stage.until(lambda: len(stage.running("between-")) == 2, "the gang that waited")
    with step("helm upgrade with another setting and the API of gangs"):
        other = ("--set", "settings.log_format=console", "--set", "visibility.enabled=true")
        stage.cluster.helm(*INSTALL, *WAIT, *other, within_s=150.0)
        stage.apply(*gang("upgraded", 2))
        stage.until(lambda: len(stage.running("upgraded-")) == 2, "a gang after the upgrade")
    with step("helm uninstall"):
        stage.cluster.helm("uninstall", "gangsched", "--namespace", NAMESPACE, "--wait", within_s=150.0)
        assert len(stage.running("upgraded-")) == 2, "an uninstall ends no work"
        stage.until(lambda: not stage.pods(namespace=NAMESPACE), "no replicas")
    stage.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")
