"""For which children of a tree room is reserved, compared with all sets of children (I9, H3); and
what that costs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import pytest
from msgspec import structs

from gangsched.core.reservations import standing as standing_module
from gangsched.core.reservations.heads import Head, empty_ledger, head_of, startable
from gangsched.core.rounds import run_round
from gangsched.core.tree_choices import is_choice
from gangsched.model.gang import Gang, Group
from gangsched.model.plan import RoundOutcome
from gangsched.model.reservation import NotEntitled
from gangsched.model.snapshot import Snapshot
from gangsched.model.tree import Composite, Part
from gangsched.state.parents import Parents
from tests.builders import gang, group, members, node, pod, shape, snapshot
from tests.sizes import of_size
from tests.unit.state.reserving.test_reservations import full, gang_of, standing

POOLS = ((), (), (("pool", "x"),), (("pool", "y"),), (("pool", "gone"),))


def random_tree(dice: random.Random, names: Sequence[str], levels: int, name: str) -> Composite:
    """A composite of these gangs, some of them below further composites, with any minimum."""
    children: list[Part] = []
    rest = [*names]
    while rest:
        number = dice.randint(1, len(rest))
        part, rest = rest[:number], rest[number:]
        if levels > 1 and dice.random() < 0.8:
            children.append(random_tree(dice, part, levels - 1, f"{name}-{part[0]}"))
        else:
            children += [f"ns/{each}" for each in part]
    return Composite(f"ns/{name}", tuple(children), dice.randint(0, len(children)))


def random_gang(dice: random.Random, name: str) -> Gang:
    """A gang of 4, 8 or 9 GPUs a pod, for some nodes or none; some have started, and of some a pod
    is missing.
    """
    of = shape(dice.choice((4, 8, 8, 9)), node_selector=dice.choice(POOLS))
    number, creation_s = dice.randint(1, 3), dice.randint(1, 9_000)
    made = gang(
        f"ns/{name}", [pod(f"{name}{n}", of=of, creation_s=creation_s) for n in range(number)]
    )
    state = dice.random()
    if state < 0.1:
        return structs.replace(made, pending=(), bound=number, satisfied=True)
    return structs.replace(made, min_member=number + 1, total=number + 1) if state < 0.2 else made


def starts(tree: Group, chosen: frozenset[str], there: Snapshot) -> bool:
    """Whether a round permits these gangs of the tree on empty nodes."""
    head = head_of(tree, chosen)
    if head is None:
        return False
    return (
        run_round(head.group, head.gangs, empty_ledger(there))[1].outcome is RoundOutcome.PERMITTED
    )


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_a_tree_is_impossible_only_if_no_choice_starts(first: int) -> None:
    """Random trees of up to three levels: a choice that starts, or all sets of gangs tried
    in vain.
    """
    told, number = 0, of_size(35, 100)
    for seed in range(first, first + number):
        dice = random.Random(seed)
        names = "abcdefg"[: dice.randint(2, 7)]
        root = random_tree(dice, names, dice.randint(1, 3), "t")
        tree = group(*(random_gang(dice, name) for name in names), tree=root)
        there = snapshot(
            [node(f"n{n}", labels={"pool": dice.choice("xy")}) for n in range(dice.randint(1, 5))]
        )
        head = head_of(tree)
        if head is None:
            continue
        found = startable(head, empty_ledger(there))
        if isinstance(found, Head):
            assert head_of(tree, found.choice) == found, (
                seed,
                "the next plan comes to another choice",
            )
            assert not found.choice or is_choice(tree, found.choice), seed
            assert starts(tree, found.choice, there), seed
        elif found.why is NotEntitled.IMPOSSIBLE:
            told += 1
            sets = (
                frozenset(f"ns/{n}" for n in each)
                for k in range(1, 8)
                for each in combinations(names, k)
            )
            assert not [
                each for each in sets if is_choice(tree, each) and starts(tree, each, there)
            ], seed
    assert told > number // 5, "both answers have to be compared"


@pytest.mark.parametrize("impossible", [1, 16, 17, 32])
def test_trees_of_many_different_children_hold_up_no_plan(
    impossible: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five trees, 16 of 32 different children each: plans stay within their work, and others get
    reservations.
    """
    monkeypatch.setattr(Parents, "named", lambda *_: None)
    there, _ = full(40, reservations=8)
    for tree in range(5):
        for n in range(32):
            of = shape(8, 100 + n, node_selector=(("pool", "gone"),) if n < impossible else ())
            there.create(
                members(
                    f"t{tree}-{n:02}",
                    2,
                    parent=f"t{tree}",
                    min_children=16,
                    of=of,
                    namespace=f"s{tree}",
                )
            )
    there.settle()
    gang_of(there, "g", 2)
    there.advance(5)
    found = {each for each, *_ in standing(there)}
    assert "ns/g" in found
    assert max(each.work for each in there.plans) <= 25_000 + standing_module.WORK
    for tree in range(5):
        name = f"tree:s{tree}/t{tree}"
        why = there.state.registry.groups[name].ineligible
        said = why is not None and why.why.why is NotEntitled.IMPOSSIBLE
        assert said == (impossible > 16), name
    # The others would exceed the share of all reservations (H7).
    assert ("tree:s0/t0" in found) == (impossible <= 16)
