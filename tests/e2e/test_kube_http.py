"""Who may come in: credentials and permissions on a real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from control_plane import ControlPlane
from control_plane.api import Api
from control_plane.applying import apply_manifests

from gangsched.kube.http.client import connect
from gangsched.kube.http.faults import Misconfigured
from tests.e2e.kube_parts import delete

pytestmark = pytest.mark.e2e


async def test_rights(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Without the role the daemon says which rights it lacks and how to grant them; with it, it may
    start.
    """
    api = Api.of(control_plane)
    await asyncio.to_thread(apply_manifests, api, crds=False)
    token = control_plane.service_account_token("gangsched-system", "gangsched")
    config = control_plane.write_kubeconfig(tmp_path / "kubeconfig", token=token)
    async with await connect(config) as client:
        await client.check()
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gangsched"
    async with await connect(control_plane.kubeconfig) as admin:
        await delete(admin, binding)
    async with await connect(config) as client:
        async with asyncio.timeout(10):
            while True:  # the authorizer learns of it a moment later
                try:
                    await client.check()
                except Misconfigured as fault:
                    said = str(fault)
                    break
                await asyncio.sleep(0.05)
    assert "create pods/binding" in said
    assert said.endswith("apply manifests/rbac.yaml.")
    api.close()


async def test_wrong_token(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Credentials the server does not know are one sentence."""
    config = control_plane.write_kubeconfig(tmp_path / "kubeconfig", token="wrong")
    async with await connect(config) as client:
        with pytest.raises(Misconfigured, match="does not accept"):
            await client.check()
