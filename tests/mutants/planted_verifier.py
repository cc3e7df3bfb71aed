"""Planted bugs in what verifies verdicts before their commit, each of which lets something wrong
pass.
"""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import bug

VERIFY = "unit/state/test_verify.py"


def nothing(*_: Any) -> Any:
    """No objection."""
    return iter(())


@bug("B2", "state.verify:Verifier._of_releases", VERIFY)
def releases_are_not_verified(_: Any) -> Any:
    return nothing


@bug("B2", "state.verify:Verifier._misplaced", VERIFY)
def any_pod_may_be_placed(_: Any) -> Any:
    return lambda self, placement, member, made: ""


@bug("B2", "state.verify:Verifier._count", VERIFY)
def room_is_not_summed_up(_: Any) -> Any:
    return lambda self, made, sign: ""


@bug("B2", "state.verify:is_roomy", VERIFY)
def nodes_are_believed_to_take_everything(_: Any) -> Any:
    return lambda shapes, nodes, kinds, snapshot: True


@bug("B2", "state.verify:is_roomy", VERIFY)
def pods_are_compared_with_their_nodes_one_by_one(real: Any) -> Any:
    return lambda shapes, nodes, kinds, snapshot: all(
        real([shape], [node], {shape: 0}, snapshot)
        for shape, node in zip(shapes, nodes, strict=True)
    )


@bug("B2", "state.verify:Verifier._of_ports", VERIFY)
def host_ports_are_not_verified(_: Any) -> Any:
    return nothing


@bug("B2", "state.verify:Verifier._of_exclusive", VERIFY)
def claims_for_one_pod_are_not_verified(_: Any) -> Any:
    return nothing


@bug("B2", "state.verify:Verifier._of_selection", VERIFY)
def decisions_about_claims_are_not_verified(_: Any) -> Any:
    return nothing


@bug("B2", "state.verify:MOST_CONSUMERS", VERIFY)
def a_claim_may_have_any_number_of_consumers(_: Any) -> Any:
    return 10_000


@bug("B2", "state.verify:Verifier._of_devices", VERIFY)
def devices_are_not_verified(_: Any) -> Any:
    return nothing


@bug("B2", "state.verify:_hold", VERIFY)
def devices_that_were_given_are_forgotten(_: Any) -> Any:
    return lambda result, key, held, shared: None


@bug("B2", "state.verify:_lack", VERIFY)
def a_gang_may_start_in_part(_: Any) -> Any:
    return lambda gang, new, made: 0


@bug("B2", "state.verify:broken_part", VERIFY)
def a_tree_may_start_in_part(_: Any) -> Any:
    return lambda root, counts, begun: None


@bug("B2", "state.verify:Verifier._apart", VERIFY)
def levels_are_not_verified(_: Any) -> Any:
    return nothing


@bug("B2", "state.verify:required_levels", VERIFY)
def levels_of_parents_are_not_verified(required_levels: Any) -> Any:
    def of_gangs(part: Any, of_gang: Any) -> Any:
        return [level for level in required_levels(part, of_gang) if len(level[1]) == 1]

    return of_gangs


@bug("B2", "state.verify:Verifier._standing", VERIFY)
def members_that_have_a_node_fix_no_domain(_: Any) -> Any:
    return lambda self, gangs, made: []


@bug("B2", "state.verify:Verifier._of_slices", VERIFY)
def slices_are_not_verified(_: Any) -> Any:
    return nothing


@bug("B2", "state.scheduling:Verifier.begin", VERIFY)
def a_plan_is_verified_beside_the_one_before(real: Any) -> Any:
    def begin(self: Any, plan: Any, snapshot: Any) -> None:
        before = self._plan
        real(self, plan, snapshot)
        self._plan.uids |= before.uids

    return begin


@bug("B2", "state.verify:Verifier._domain", VERIFY)
def labels_that_changed_are_not_asked_again(_: Any) -> Any:
    def domain(self: Any, keys: Any, name: str) -> Any:
        table = self._plan.snapshot.table
        labels = table.nodes[table.index[name]].labels
        found = tuple(labels.get(key) for key in keys)
        return None if None in found else found

    return domain
