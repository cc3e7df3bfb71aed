"""Sizes of generated tests are set before any of them is read; and what tests of several folders use."""

import pytest

import tests.sizes  # noqa: F401
from gangsched.state.parents import Parents


@pytest.fixture
def no_wait_for_a_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of which nobody states a minimum wait a second for one, which is tested in `test_parents`."""
    monkeypatch.setattr(Parents, "named", lambda *_: None)
