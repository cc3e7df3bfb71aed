"""One cluster of real nodes for all plays, which go on where the one before left it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from control_plane.api import Api
from control_plane.real import RealCluster, UnsuitableError
from control_plane.real.host import prepare
from control_plane.real.images import Images, build

from tests.distribution import images_of
from tests.real_node.stage import FROM_DIST, Stage, say, step
from tests.release import DIST


@pytest.fixture(scope="session")
def images() -> Images:
    """What the nodes run. Skips where the machine cannot carry them, unless REAL_NODE=required.

    With RELEASE=1 gangsched's image is that of `make release`.
    """
    try:
        with step("prepare the machine"):
            prepare()
    except UnsuitableError as error:
        if os.environ.get("REAL_NODE") == "required":
            raise
        pytest.skip(f"no real nodes here: {error}")
    with step("build the images"):
        built = build(say)
    return images_of(DIST, built) if FROM_DIST else built


@pytest.fixture(scope="session")
def stage(images: Images) -> Iterator[Stage]:
    """Three nodes, and what the plays do with them."""
    with step("start three nodes"):
        cluster = RealCluster(images, say=say).__enter__()
    api: Api = cluster.api()
    try:
        yield Stage(cluster, api)
    finally:
        api.close()
        with step("take the nodes down"):
            cluster.__exit__(None, None, None)
