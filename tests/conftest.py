"""Sizes of generated tests are set before any of them is read."""

import tests.sizes  # noqa: F401
