"""A mapping with its changes over it, against a plain dict."""

from __future__ import annotations

import random

import pytest

from gangsched.model import layers
from gangsched.model.layers import Layers


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_a_dict_with_the_same_changes_is(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was there before the changes stays as it was."""
    dice = random.Random(seed)
    monkeypatch.setattr(layers, "FEW", dice.choice((0, 3, 64)))
    expected: dict[str, int] = {}
    now: Layers[str, int] = Layers({})
    for _ in range(40):
        before, was = now, dict(expected)
        changes: list[tuple[str, int | None]] = []
        for _ in range(dice.randrange(4)):
            key = dice.choice("abcdefgh")
            value = dice.choice((None, 1, 2))
            changes.append((key, value))
            expected.pop(key, None)
            if value is not None:
                expected[key] = value

        now = before.changed(changes)
        for shown, plain in ((now, expected), (before, was)):
            assert dict(shown) == plain
            assert len(shown) == len(plain)
            assert [shown.get(key, 0) for key in "abcdefghi"] == [
                plain.get(key, 0) for key in "abcdefghi"
            ]
            assert shown.keys() & {"a", "b"} == plain.keys() & {"a", "b"}
            assert ("a" in shown) == ("a" in plain)


def test_one_change_copies_no_other_entry() -> None:
    """The base is the same object, until the changes are many."""
    base = {number: number for number in range(10_000)}
    now = Layers(base)
    bases = [now._base]
    for number in range(2_000):
        now = now.changed([(number, None)])
        if now._base is not bases[-1]:
            bases.append(now._base)

    assert 2 <= len(bases) < 8
    assert len(now) == 8_000


def test_an_entry_that_is_not_there_is_an_error() -> None:
    """Whether it was never there, or is gone."""
    now = Layers({"a": 1}).changed([("a", None)])
    for key in ("a", "b"):
        with pytest.raises(KeyError):
            now[key]
