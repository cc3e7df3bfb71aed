"""Planted bugs in what a PodGroup says after its gang has started."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from gangsched.state.preemption.last_answers import EndedNomination
from tests.mutants.mutant import bug, replace

PHASES = "unit/state/reporting/test_gang_phase.py"
NOMINATIONS = "unit/state/preemption/test_nominations.py"
LIVES = "properties/test_gang_lives.py"


@bug("E8", "state.reporting.gang_phase:QUIET_S", PHASES)
def a_gang_finishes_between_the_batches_of_its_job(_: Any) -> Any:
    return 0.0


@bug("E8", "state.reporting.gang_phase:Life.is_vanishing", PHASES)
def workers_that_their_operator_removes_are_missed(_: Any) -> Any:
    return property(lambda self: False)


@bug("E8", "state.reporting.status:life_of", PHASES)
def an_only_waiting_gang_misses_members_that_run(life_of: Any) -> Any:
    def counts_all(record: Any, gang: Any, *moment: Any) -> Any:
        life = life_of(record, gang, *moment)
        return replace(life, has_started=gang.satisfied and not gang.plain)

    return counts_all


@bug("E8", "state.reporting.status:_begins_anew", LIVES)
def another_start_has_the_counts_of_the_last_one(_: Any) -> Any:
    return lambda *_: False


@bug("E8", "state.reporting.status:_refusal", PHASES)
def what_a_sibling_waits_for_is_told_of_a_gang_that_is_done(_: Any) -> Any:
    return lambda gang, verdict, life: verdict.of_gang(gang.id) if verdict else None


@bug("E3", "state.reporting.authorship:is_reported", PHASES)
def a_podgroup_without_pods_is_nobodys_after_a_restart(_: Any) -> Any:
    return lambda pod_group: False


@bug("E3", "state.reporting.reports:RESTORE_S", PHASES)
def a_status_is_restored_as_often_as_another_writes_it(_: Any) -> Any:
    return 0.0


@bug("E3", "state.reporting.stored:_compared", PHASES)
def fields_that_the_server_drops_are_written_each_minute(_: Any) -> Any:
    return lambda written, stored: structs.replace(written, is_contested=True)


@bug("E8", "state.reporting.stored:_bare", PHASES)
def counts_of_a_native_podgroup_are_news(_: Any) -> Any:
    return lambda entry: {key: value for key, value in entry.items() if "Time" not in key}


@bug("V22", "state.preemption.last_answers:LastAnswers.end", NOMINATIONS)
def an_eviction_after_the_end_of_its_nomination_is_not_told(_: Any) -> Any:
    return lambda self, record, result, now_s: self._close(EndedNomination(record, result))
