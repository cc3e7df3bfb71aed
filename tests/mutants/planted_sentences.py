"""Planted lies in what is told of decisions (rules E)."""

from __future__ import annotations

from typing import Any

from gangsched.model.reservation import Blocker
from tests.mutants.mutant import bug, replace

ORACLE = "properties/test_sentences.py"


@bug("E1", "core.findings:no_room_for_all", ORACLE)
def many_kinds_of_pods_are_counted_as_if_they_were_one(refuse: Any) -> Any:
    return lambda *given, **named: refuse(*given, **{**named, "exact": True})


@bug("E1", "core.decision:takes_at_best", ORACLE)
def a_busy_rack_takes_no_more_when_it_is_empty(_: Any) -> Any:
    return lambda group, gangs, totals: ("r0", 0)


@bug("E1", "core.diagnosis:_amounts", ORACLE)
def amounts_are_summed_over_nodes_that_are_not_eligible(amounts: Any) -> Any:
    return lambda name, asked, nodes, ledger: amounts(name, asked, nodes | True, ledger)


@bug("E1", "core.limits:limits", ORACLE)
def memory_limits_what_fits_on_empty_nodes(_: Any) -> Any:
    return lambda *given: ("memory",)


@bug("E1", "core.findings:beside_none", ORACLE)
def one_node_more_takes_a_pod_alone(beside: Any) -> Any:
    def more(*given: Any) -> Any:
        found = beside(*given)
        return found._replace(alone=found.alone + 1)

    return more


@bug("E1", "core.findings:_need", ORACLE)
def a_gang_needs_one_pod_more(need: Any) -> Any:
    return lambda gang, pods: replace(need(gang, pods), pods=pods + 1)


@bug("E1", "core.search.lacks:_by_domain", ORACLE)
def a_rack_holds_one_more_pod_of_a_slice(by_domain: Any) -> Any:
    def more(*given: Any) -> Any:
        holds, whole = by_domain(*given)
        return holds + 1, whole

    return more


@bug("E1", "core.device_counts:devices_short", ORACLE)
def one_more_device_is_free(counted: Any) -> Any:
    def more(*given: Any) -> Any:
        found = counted(*given)
        return found and replace(found, free=found.free + 1)

    return more


@bug("E1", "core.findings:claim_of_one_pod", ORACLE)
def one_more_pod_needs_the_claim(refuse: Any) -> Any:
    return lambda gang, name, needed: refuse(gang, name, needed + 1)


@bug("I9", "core.findings:children_missing", ORACLE)
def one_more_child_is_ready(refuse: Any) -> Any:
    return lambda composite, ready, unready: refuse(composite, ready + 1, unready)


@bug("V20", "core.findings:nominated", ORACLE)
def the_first_pod_that_must_stop_is_not_counted(refuse: Any) -> Any:
    return lambda nodes, ending, *given, **named: refuse(nodes, [*ending][1:], *given, **named)


@bug("V21", "core.preemption.attempt:obstacle", ORACLE)
def evictions_make_room_for_one_pod_less(obstacle: Any) -> Any:
    def less(*given: Any) -> Any:
        found = obstacle(*given)
        return replace(found, room=max(0, found.room - 1))

    return less


@bug("H14", "core.reservations.records:_waits_for", ORACLE)
def a_gang_waits_for_its_own_end(waits_for: Any) -> Any:
    return lambda each, *given: (Blocker(each.head.group.id, "ns"), *waits_for(each, *given))


@bug("E1", "sentences.lack_of_room:_best", ORACLE)
def an_upper_limit_is_told_as_a_number(best: Any) -> Any:
    return lambda fact: best(fact).removeprefix("at most ")


@bug("E1", "sentences.lack_of_room:no_node_for", "unit/core/test_diagnosis.py")
def pods_do_not_say_that_there_is_no_room(_: Any) -> Any:
    return lambda pods: ""


@bug("E1", "sentences.fields:_scarcest", ORACLE)
def the_gangs_api_has_other_amounts_than_the_sentence(scarcest: Any) -> Any:
    return lambda short: {**scarcest(short), "free": "77", "offered": "77"}


@bug("V20", "state.preemption.awaited:told", "unit/state/preemption/test_nominations.py")
def pods_that_have_stopped_are_still_waited_for(told: Any) -> Any:
    known: dict[str, Any] = {}

    def first(record: Any, *given: Any, **named: Any) -> Any:
        return known.setdefault(record.id, told(record, *given, **named))

    return first


@bug("V22", "state.preemption.nominees:namespaces", "unit/state/preemption/test_nominations.py")
def victims_of_another_namespace_are_named(namespaces: Any) -> Any:
    return lambda group_id, registry: frozenset({"ns"})


@bug("E6", "model.gang:Refusal.of_gang", "unit/state/reporting/test_current_waits.py")
def the_refusal_of_a_sibling_is_told_as_its_own(_: Any) -> Any:
    return lambda self, gang: self


@bug("E5", "state.reporting.conditions:shown_reason", "unit/state/reporting/test_current_waits.py")
def a_pod_that_must_stay_at_home_asks_for_nodes(_: Any) -> Any:
    return lambda refusal: refusal.reason


@bug("E7", "sentences.times:minute_by", "unit/sentences/test_times.py")
def a_promise_is_rounded_down(_: Any) -> Any:
    return lambda at_s: int(at_s // 60 * 60)
