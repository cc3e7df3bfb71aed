"""Work of many namespaces that is done in turns."""

from __future__ import annotations

from gangsched.state.namespace_turns import NamespaceTurns


def filled() -> NamespaceTurns:
    """Three keys of one namespace, then one of another."""
    queue = NamespaceTurns()
    queue.add_all("crowd", ["a", "b", "c"])
    queue.add("quiet", "z")
    return queue


def test_namespaces_take_turns() -> None:
    """Whoever has one key waits for one of each other namespace."""
    queue = filled()
    assert queue.first() == "a"
    assert queue.take(2) == ["a", "z"]
    assert queue.take(9) == ["b", "c"]
    assert (queue.first(), len(queue), queue.take()) == (None, 0, [])


def test_a_key_waits_once() -> None:
    """It keeps its place when it is added again; one that is discarded waits no longer."""
    queue = filled()
    queue.add("crowd", "a")
    assert (len(queue), sorted(queue)) == (4, ["a", "b", "c", "z"])

    queue.discard("crowd", "a")
    queue.discard("quiet", "z")
    queue.discard("quiet", "z")
    assert not queue.has("crowd", "a")
    assert queue.has("crowd", "b")
    assert queue.take(9) == ["b", "c"]
