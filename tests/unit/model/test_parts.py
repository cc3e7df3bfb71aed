"""Parts: whole and broken ones of every small tree, against a definition by sets (I9, B1)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, product

import pytest
from msgspec import structs

from gangsched.model.gang import Gang
from gangsched.model.parts import (
    Root,
    broken_part,
    is_whole,
    root_of,
    whole_children,
    without_broken,
)
from gangsched.model.tree import (
    Composite,
    Part,
    composites_of,
    gangs_of,
    part_id,
    required_levels,
    root_part,
    spares_children,
    starts_in_parts,
)

LEAF_STATES = ((0, 0), (0, 1), (1, 0), (2, 1), (1, 1))
"""The minimum of a leaf and what it has, as far as they differ: more of either changes nothing."""
NUMBER_OF_SHAPES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 9, 6: 20, 7: 48}
"""Rooted trees with so many parts (OEIS A000081)."""


def shapes(parts: int, most: int | None = None) -> Iterator[tuple[object, ...]]:
    """Every rooted tree of so many parts, as nested tuples of children, each once."""
    if parts == 1:
        yield ()
        return
    yield from _forests(parts - 1, parts - 1 if most is None else most)


def _forests(parts: int, most: int) -> Iterator[tuple[object, ...]]:
    """Forests of so many parts, whose trees have at most `most` of them and come in descending
    order.
    """
    if parts == 0:
        yield ()
        return
    for first in range(min(parts, most), 0, -1):
        for number in range(parts // first, 0, -1):
            trees = [*shapes(first)]
            for chosen in _multisets(trees, number):
                for rest in _forests(parts - first * number, first - 1):
                    yield (*chosen, *rest)


def _multisets(trees: list[tuple[object, ...]], number: int) -> Iterator[tuple[object, ...]]:
    if number == 0:
        yield ()
        return
    for index, tree in enumerate(trees):
        for rest in _multisets(trees[index:], number - 1):
            yield (tree, *rest)


def named(shape: tuple[object, ...], name: str = "r") -> Part:
    """The tree of a shape; a part without children is a leaf. All minimums are 0."""
    if not shape:
        return name
    children = tuple(named(child, f"{name}{index}") for index, child in enumerate(shape))  # type: ignore[arg-type]
    return Composite(id=name, children=children, min_children=0)


def with_minimums(part: Part) -> Iterator[Part]:
    """The tree with every choice of minimums of its composites."""
    if isinstance(part, str):
        yield part
        return
    for children in product(*(list(with_minimums(child)) for child in part.children)):
        for minimum in range(len(children) + 1):
            yield structs.replace(part, children=children, min_children=minimum)


def trees(parts: int) -> Iterator[Part]:
    """Every tree of so many parts."""
    for shape in shapes(parts):
        yield from with_minimums(named(shape))


# --- the definition, by sets --------------------------------------------------------------------


def enough(part: Part, least: dict[str, int], counts: dict[str, int]) -> bool:
    """Some choice of as many children as are needed is one in which each has enough."""
    if isinstance(part, str):
        return counts[part] >= least[part]
    choices = combinations(part.children, part.min_children)
    return any(all(enough(child, least, counts) for child in chosen) for chosen in choices)


def broken_by_definition(
    root: Part, least: dict[str, int], counts: dict[str, int], begun: dict[str, int]
) -> set[str]:
    """The names of all parts that begin here, have something and not enough."""
    every: list[Part] = [*composites_of(root), *gangs_of(root)]
    found = set()
    for part in every:
        own = gangs_of(part)
        has = sum(counts[each] for each in own)
        had = sum(begun[each] for each in own)
        if has and not had and not enough(part, least, counts):
            found.add(part_id(part))
    return found


def states(root: Part) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """Every state of a tree's leaves: their minimums and what they have, up to the order of
    siblings.
    """
    beside = [
        [each for each in part.children if isinstance(each, str)] for part in composites_of(root)
    ]
    beside = beside or [gangs_of(root)]
    leaves = [leaf for each in beside for leaf in each]
    for of_each in product(
        *(combinations_with_replacement(LEAF_STATES, len(each)) for each in beside)
    ):
        chosen = [state for each in of_each for state in each]
        least = {leaf: minimum for leaf, (minimum, _) in zip(leaves, chosen, strict=True)}
        counts = {leaf: has for leaf, (_, has) in zip(leaves, chosen, strict=True)}
        yield least, counts


@pytest.mark.parametrize("parts", NUMBER_OF_SHAPES)
def test_every_shape_is_made_once(parts: int) -> None:
    """The trees that the other tests try are all that there are."""
    made = [*shapes(parts)]
    assert len(made) == len(set(made)) == NUMBER_OF_SHAPES[parts]


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 6, 7])
def test_what_is_broken_in_every_tree(parts: int) -> None:
    """The part found is broken by the definition, and none inside it is; without one, none is
    broken.
    """
    for tree in trees(parts):
        nothing = dict.fromkeys(gangs_of(tree), 0)
        inside = {
            part_id(each): {*map(part_id, composites_of(each)), *gangs_of(each)}
            for each in composites_of(tree)
        }
        for least, counts in states(tree):
            root = Root(tree, least)
            found, broken = (
                broken_part(root, counts),
                broken_by_definition(tree, least, counts, nothing),
            )
            assert (found is None) is (not broken), (tree, least, counts)
            if found is not None:
                assert part_id(found) in broken, (tree, least, counts)
                assert not broken & inside.get(part_id(found), set()) - {part_id(found)}, (
                    tree,
                    least,
                    counts,
                )
            assert is_whole(root, counts) is enough(tree, least, counts), (tree, least, counts)


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5])
def test_what_has_begun_is_completed_one_by_one(parts: int) -> None:
    """A part that had something before is not asked, those inside it are."""
    for tree in trees(parts):
        for least, counts in states(tree):
            leaves = [leaf for leaf, has in counts.items() if has]
            for number in range(len(leaves) + 1):
                for chosen in combinations(leaves, number):
                    begun = {leaf: int(leaf in chosen) for leaf in counts}
                    found = broken_part(Root(tree, least), counts, begun)
                    broken = broken_by_definition(tree, least, counts, begun)
                    assert (found is None) is (not broken), (tree, least, counts, begun)


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 6])
def test_the_most_that_is_not_broken(parts: int) -> None:
    """What is left has no broken part, and no larger choice of the leaves has none."""
    for tree in trees(parts):
        nothing = dict.fromkeys(gangs_of(tree), 0)
        for least, counts in states(tree):
            left = without_broken(Root(tree, least), counts)
            assert not broken_by_definition(tree, least, left, nothing), (tree, least, counts)
            dropped = [leaf for leaf, has in counts.items() if has and not left[leaf]]
            for number in range(1, len(dropped) + 1):
                for back in combinations(dropped, number):
                    more = left | {leaf: counts[leaf] for leaf in back}
                    assert broken_by_definition(tree, least, more, nothing), (
                        tree,
                        least,
                        counts,
                        back,
                    )


def test_a_group_needs_all_of_its_gangs() -> None:
    """A gang alone is a leaf; several without a tree are all needed."""
    gangs = [Gang(id="n/a", min_member=2), Gang(id="n/b", min_member=1)]
    root = root_of(root_part(["n/a", "n/b"]), gangs)
    assert broken_part(root, {"n/a": 2}) is root.part
    assert broken_part(root, {"n/a": 1, "n/b": 1}) == "n/a"
    assert broken_part(root, {"n/a": 2, "n/b": 1}) is None
    assert broken_part(root_of("n/a", gangs[:1]), {"n/a": 1}) == "n/a"


def test_the_minimum_of_a_started_gang_is_the_one_it_started_with() -> None:
    """Raising a minimum breaks nothing, and lowering it counts at once (B5)."""
    raised = Gang(id="n/a", min_member=4, satisfied=True, permitted_min=2)
    assert broken_part(root_of("n/a", [raised]), {"n/a": 2}) is None
    lowered = structs.replace(raised, min_member=1)
    assert broken_part(root_of("n/a", [lowered]), {"n/a": 1}) is None
    assert broken_part(root_of("n/a", [raised]), {"n/a": 1}) == "n/a"


def test_a_child_without_a_minimum_counts_as_whole_but_not_as_started() -> None:
    """It holds up nobody; that it has members does not excuse its siblings."""
    tree = Composite(id="n/r", children=("n/a", "n/z"), min_children=2)
    root = Root(tree, {"n/a": 2, "n/z": 0})
    assert broken_part(root, {"n/a": 2}) is None
    assert broken_part(root, {"n/z": 1}) is tree
    assert whole_children(root, tree, {"n/a": 2}) == ["n/a"]


def test_every_group_has_a_root() -> None:
    """A gang is a leaf, several are one joint part, and declared parts stay as they are."""
    assert root_part(["n/a"]) == "n/a"
    joint = root_part(["n/a", "n/b"])
    assert isinstance(joint, Composite)
    assert gangs_of(joint) == ["n/a", "n/b"]
    assert joint.id not in gangs_of(joint), "its name would be that of a gang"

    tree = Composite(id="n/r", children=("n/a", "n/b"), min_children=2)
    assert root_part(["n/a", "n/b"], tree) is tree
    assert [starts_in_parts(part) for part in ("n/a", joint, tree)] == [False, False, True]

    assert not any(spares_children(part) for part in ("n/a", joint, tree))
    nested = structs.replace(tree, children=("n/c", structs.replace(tree, min_children=1)))
    assert spares_children(nested)


def test_a_required_domain_of_one_gang_is_that_of_its_joint_part() -> None:
    """In a declared tree it is that of the gang alone, beside those of the parts around it."""
    labels = {"n/a": ("rack",), "n/b": (), "n/c": ("zone", "rack")}

    def required(part: Part) -> list[tuple[tuple[str, ...], list[str]]]:
        return [(keys, [*gangs]) for keys, gangs in required_levels(part, labels.__getitem__)]

    assert required("n/a") == [(("rack",), ["n/a"])]
    joint = root_part(["n/a", "n/b", "n/c"])
    assert required(joint) == [(("rack", "zone"), ["n/a", "n/b", "n/c"])]

    tree = Composite(id="n/r", children=("n/a", "n/b"), min_children=1, topology=("row",))
    assert required(tree) == [
        (("row",), ["n/a", "n/b"]),
        (("rack",), ["n/a"]),
        ((), ["n/b"]),
    ]
