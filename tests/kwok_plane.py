"""A control plane whose nodes have a kubelet of kwok's, for tests that may not share one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import apply_manifests


@contextmanager
def plane_with_nodes(count: int, *, gpus: int) -> Iterator[ControlPlane]:
    """Our manifests and nodes n0, n1, … of so many GPUs; deleted pods go."""
    with ControlPlane(kwok=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        make.create_all(api, [make.node(f"n{index}", gpus=gpus) for index in range(count)])
        api.close()
        yield plane
