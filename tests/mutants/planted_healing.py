"""Planted bugs in how a running gang is healed."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import bug


@bug("L3", "core.homes:_shared", "properties/test_homes.py")
def the_home_is_that_of_the_first_member(shared: Any) -> Any:
    return lambda of, nodes: shared(of, nodes[:1])
