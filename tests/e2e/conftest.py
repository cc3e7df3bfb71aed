"""What the tests on a real API server share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from control_plane import ControlPlane


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """An API server for the whole session: no kwok, no definitions, nothing in it; tests clean up after themselves."""
    with ControlPlane() as plane:
        yield plane
