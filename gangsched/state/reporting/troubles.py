"""What may become of members that run: nothing is decided by it, and no condition has it (semantics
L1).

Invariant: pure; a few nodes and pods are named, however many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangsched.model.objects import Node
from gangsched.sentences import member_troubles as sentences
from gangsched.state.avoided import AvoidCause
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import GroupRecord
from gangsched.state.members import State

NOT_READY: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Taints that the node controller keeps on such nodes."""
NAMED: Final = 5


def troubles(
    record: GangRecord,
    group: GroupRecord | None,
    nodes: Mapping[str, Node],
) -> list[str]:
    """Sentences about members on nodes that are gone, not ready or closed, about containers that
    restart again and again, and about nodes that the gang avoids.
    """
    bound = record.of(State.BOUND)
    by_node: dict[str, list[str]] = {}
    for member in bound:
        pods = by_node.setdefault(member.node, [])
        pods.append(member.pod.key)

    texts: list[str] = []
    for name in sorted(by_node):
        state = _state_of(nodes.get(name))
        if state:
            pods = sorted(by_node[name])
            texts.append(sentences.on_node(name, state, pods))

    restarting = [member.pod for member in bound if member.pod.restarts]
    restarting.sort(key=lambda pod: pod.key)
    for pod in restarting[:NAMED]:
        texts.append(sentences.restarts(pod.key, pod.restarts))

    rows = group.avoid if group is not None else {}
    for name in sorted(rows):
        row = rows[name]
        if row.cause is AvoidCause.STRUCK and row.gang == record.id:
            texts.append(sentences.avoided(name))

    return texts[: 2 * NAMED]


def _state_of(node: Node | None) -> str:
    """The state of a node in words, "" if it is all right."""
    if node is None:
        return "gone"
    if any(taint.key in NOT_READY for taint in node.taints):
        return "not ready"
    if node.unschedulable:
        return "closed"

    return ""
