"""All planted bugs. Each module adds its own when it is imported."""

from __future__ import annotations

from tests.mutants import (  # noqa: F401
    planted_audit,
    planted_autoscaling,
    planted_bulkhead,
    planted_devices,
    planted_gangs,
    planted_healing,
    planted_histories,
    planted_members_to_come,
    planted_owners,
    planted_page,
    planted_phases,
    planted_plans,
    planted_preemption,
    planted_reading,
    planted_requests,
    planted_reservations,
    planted_sentences,
    planted_starts,
    planted_trees,
    planted_verifier,
)
from tests.mutants.mutant import MUTANTS

__all__ = ["MUTANTS"]
