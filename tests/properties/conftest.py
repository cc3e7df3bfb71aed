"""How many cases are generated: few in every run of the tests, many in `make properties`.

The number of cases of each property is a share of the profile's `max_examples`. A failure prints its falsifying example
and the line that reproduces it (`print_blob`), so seeds are never lost.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

settings.register_profile("few", max_examples=100, deadline=None, print_blob=True, suppress_health_check=SLOW)
settings.register_profile(
    "nightly", max_examples=2_000, deadline=None, print_blob=True, suppress_health_check=SLOW, database=None
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))
