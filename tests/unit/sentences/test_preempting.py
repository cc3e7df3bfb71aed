"""What a nominated group is told (semantics V20, V22)."""

from __future__ import annotations

import pytest

from gangsched.core.findings import nominated
from gangsched.sentences import say
from tests.builders import pod

UNTIL_S = 1_796_000_000
GIVES_UP = "; gives up at 2026-11-30T00:54Z"


@pytest.mark.parametrize(
    ("nodes", "ending", "text"),
    [
        (("a",), {"running": 2}, "on a when ns/running (2 pods) has stopped"),
        (("b", "a"), {"": 1}, "on a and b when pod ns/p-0 has stopped"),
        (("a",), {"": 2}, "on a when pod ns/p-0 and pod ns/p-1 have stopped"),
        (
            ("a", "b", "c", "d"),
            {"x": 1, "y": 3, "z": 2, "": 2},
            "on a, b and 2 more nodes when ns/y (3 pods), ns/z (2 pods) and 3 more pods have"
            " stopped",
        ),
        (("a",), {}, "on a: the pods there have stopped"),
    ],
)
def test_the_nodes_and_the_pods_that_must_stop_are_named(
    nodes: tuple[str, ...],
    ending: dict[str, int],
    text: str,
) -> None:
    """V20: at most two of each by name, those with most pods first, and the others by number."""
    pods = [
        (pod(f"{gang or 'p'}-{number}"), gang and f"ns/{gang}")
        for gang, count in ending.items()
        for number in range(count)
    ]
    refusal = nominated(nodes, pods, frozenset({"ns"}), until_s=UNTIL_S)
    assert say(refusal).text == f"will start {text}{GIVES_UP}"


@pytest.mark.parametrize("namespaces", [{"other"}, {"ns", "other"}])
def test_pods_of_other_namespaces_are_counted_only(namespaces: set[str]) -> None:
    """V22: a message to a group goes to all of its gangs, so it has no name that one of them may
    not learn.
    """
    ending = [(pod("low-0"), "ns/low"), (pod("low-1"), "ns/low")]
    refusal = nominated(["a"], ending, frozenset(namespaces), until_s=UNTIL_S)
    assert say(refusal).text == f"will start on a when 2 pods have stopped{GIVES_UP}"
