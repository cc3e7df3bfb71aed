"""Certificates that all tests of the server share."""

from __future__ import annotations

import pytest
from control_plane.pki import Pki, make_pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates of a cluster."""
    return make_pki(tmp_path_factory.mktemp("pki"))
