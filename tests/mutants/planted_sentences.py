"""Planted lies in what is told of decisions (rules E)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.mutants.mutant import bug

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


@bug("E1", "core.findings:beside_none", ORACLE)
def one_node_more_takes_a_pod_alone(beside: Any) -> Any:
    def more(*given: Any) -> Any:
        found = beside(*given)
        return found._replace(alone=found.alone + 1)

    return more


@bug("E1", "core.findings:_need", ORACLE)
def a_gang_needs_one_pod_more(need: Any) -> Any:
    return lambda gang, pods: replace(need(gang, pods), pods=pods + 1)
