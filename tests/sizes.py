"""How much a test tries: a part of it in the gate, all of it in `make properties`.

The number of cases of each property is a share of the profile's `max_examples`. A failure prints
its falsifying example and the line that reproduces it (`print_blob`), so seeds are never lost. A
test whose size is no number of examples has the marker `long`, and takes its size from `of_size`.
"""

from __future__ import annotations

import os
from typing import TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "gate")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

settings.register_profile(
    "gate", max_examples=20, deadline=None, print_blob=True, suppress_health_check=SLOW
)
settings.register_profile(
    "nightly",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=SLOW,
    database=None,
)
settings.load_profile(PROFILE)


def of_size(gate: T, nightly: T) -> T:
    """The size in the gate, or in `make properties`."""
    return nightly if PROFILE == "nightly" else gate
