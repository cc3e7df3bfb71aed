"""Planted bugs of the audit trail and of what commands tell of a cluster."""

from __future__ import annotations

from typing import Any

from gangsched.model.protocol import Bind
from gangsched.telemetry.history import Happening
from tests.mutants.mutant import bug

AUDIT, HISTORY = "unit/telemetry/test_audit.py", "unit/telemetry/test_history.py"
PLUGIN = "../packages/kubectl-gangsched/tests"
MAP, DOCTOR = f"{PLUGIN}/test_gpu_map.py", f"{PLUGIN}/doctor/test_command.py"


@bug("E2", "telemetry.audit:Audit.ordered", AUDIT)
def a_gang_has_started_once_its_binds_are_ordered(ordered: Any) -> Any:
    def hasty(self: Any, actions: Any) -> None:
        ordered(self, actions)
        for gang in {
            self._gang_of_pod(action.uid) for action in actions if isinstance(action, Bind)
        }:
            self.history.note(gang, Happening.STARTED, "started")

    return hasty


@bug("E2", "telemetry.audit:Audit._goes_on", AUDIT)
def a_gang_times_out_with_each_text(_: Any) -> Any:
    return lambda self, gang, reason: False


@bug("E2", "telemetry.history:Allowance.take", HISTORY)
def one_gang_fills_the_whole_trail(_: Any) -> Any:
    return lambda self, now_s: True


@bug("E2", "telemetry.history:REPEATING", HISTORY)
def each_refused_bind_is_a_line(_: Any) -> Any:
    return frozenset()


@bug("E2", "kubectl_gangsched.gpu_map:unready_nodes", MAP)
def a_node_that_is_not_ready_is_free(_: Any) -> Any:
    return lambda page: {}


@bug("E2", "kubectl_gangsched.doctor.leader:_ahead_s", DOCTOR)
def a_lease_that_nobody_renews_is_led(_: Any) -> Any:
    return lambda lease, client: 0.0
