"""Every sentence that a decision tells people, in one place.

Law: a sentence names what is short, how much of it, and whose it is; it ends without a full stop where more may follow.
Refusals by Filter are worded, counted and sorted as kube-scheduler does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gangsched.core.filter import PLUGINS, node_affinity, node_ports, static_fit
from gangsched.core.filter.node_resources_fit import insufficient, room
from gangsched.core.filter.outlook import AFTER_ROOM, Outlook
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Gang, Group
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Bools

NO_NODES = "no nodes available to schedule pods"


def nodes_available(pod: Pod, ledger: Ledger, closed: Iterable[tuple[str, Bools]] = (), *, filled: bool = False) -> str:
    """kube-scheduler's sentence: `0/N nodes are available: 3 Insufficient cpu, 9 node(s) had untolerated taint(s).`

    `closed` are nodes that are closed for another reason, by its text (`core.scopes`). With `filled`, the sentence is
    as it would read for the pod after the last one that fits.
    """
    total, shape = len(ledger.table), pod.shape
    if not total:
        return NO_NODES
    if node_affinity.conflicting(shape):
        return f"0/{total} nodes are available: {node_affinity.CONFLICT}."
    outlook = Outlook(pod, ledger.company)
    if outlook.problem:
        return f"0/{total} nodes are available: {outlook.problem}."
    fit = static_fit(shape, ledger.table)
    counts = {
        PLUGINS[code - 1][0]: int(count)
        for code, count in zip(*np.unique(fit.refused_by[fit.refused_by > 0], return_counts=True), strict=True)
    }
    open_nodes = fit.refused_by == 0
    for text, mask in closed:
        counts[text] = counts.get(text, 0) + int((open_nodes & mask).sum())
        open_nodes = open_nodes & ~mask
    if outlook.bound:
        taken = open_nodes & outlook.ports_taken()
        counts[node_ports.REFUSED] = int(taken.sum())
        open_nodes = open_nodes & ~taken
    free = ledger.free
    if filled:
        free = free.copy()
        for name, amount in shape.requests:
            if name in ledger.resources:
                free[ledger.resources[name]] -= ledger.room(shape) * amount
    counts |= insufficient(shape, free, ledger.resources, open_nodes)
    if outlook.bound:
        refused = np.where(open_nodes & (room(shape, free, ledger.resources) > 0), outlook.refused_by(), 0)
        for code, texts in enumerate(AFTER_ROOM, start=1):
            for text in texts:
                counts[text] = counts.get(text, 0) + int((refused == code).sum())
    said = sorted(f"{count} {text}" for text, count in counts.items() if count)
    return f"0/{total} nodes are available: {', '.join(said)}."


def unsupported(pod: Pod) -> str:
    """A feature that cannot be honoured yet is a refusal, never a guess."""
    return f"pod {pod.key} uses {', '.join(pod.shape.unsupported)}, which gangsched cannot place yet"


def gang_failed(pod: Pod, reason: str, placed: int, needed: int) -> str:
    """Whose turn failed, why, and how far the gang had come (semantics R2)."""
    return f"pod {pod.key}: {reason.removesuffix('.')}; {placed} of {needed} had found a node"


def no_room_for_all(gang: Gang, room: int, needed: int, nodes: str) -> str:
    """The arithmetic refusal before anything is placed (semantics P4)."""
    return f"gang {gang.id} needs room for {_some(needed, 'more pod')} and there is room for {room}: {nodes}"


def min_resources_short(gang: Gang, short: Iterable[str]) -> str:
    """`short` has entries like `3 nvidia.com/gpu` (semantics P4)."""
    return f"gang {gang.id}: minResources are not free on the nodes its members may use: {', '.join(short)} missing"


def waiting_for_members(gang: Gang) -> str:
    """Counts for P1: `3 of 5 members of ns/g exist; 2 missing; 1 gated`."""
    text = f"{gang.quorum} of {gang.min_member} members of {gang.id} exist; {gang.min_member - gang.quorum} missing"
    if gang.gated:
        text += f"; {gang.gated} gated"
    if gang.terminating:
        text += f"; {gang.terminating} terminating"
    if gang.foreign:
        text += f"; {len(gang.foreign)} with another schedulerName"
    return text


def waiting_for_more(gang: Gang, lack: int) -> str:
    """Told where enough members exist, but too few of those that Permit counts (semantics B1)."""
    more = _some(lack, "more member")
    return f"{more} of {gang.id} must wait together: its match policy is {gang.match_policy.value}"


def timed_out(gang: Gang) -> str:
    """Told while members carry the timeout annotation (semantics T3)."""
    return (
        f"gang {gang.id} timed out earlier: delete the pods or remove the timeout annotation from them to try again "
        f"({len(gang.timed_out)} carry it)"
    )


def wait_time_over(group: Group) -> str:
    """Told when the wait time ends (semantics T2)."""
    return f"the wait time of {group.wait_time_s:g} s is over, {lacking(group.gangs, {})}; all held nodes were released"


def holding(pod: Pod, node: str, lack: str) -> str:
    """Told on a held pod (semantics R3)."""
    return f"pod {pod.key} holds room on node {node}, {lack}"


def holds_summary(held: int, lack: str) -> str:
    """Told on a group that holds (semantics R3)."""
    return f"{_some(held, 'member')} {'holds' if held == 1 else 'hold'} a node, {lack}"


def lacking(gangs: Iterable[Gang], placed: Mapping[str, int]) -> str:
    """How many members each gang still needs, `placed` newly placed ones (by gang id) counted."""
    short = {gang.id: gang.min_member - gang.counted(placed.get(gang.id, 0)) for gang in gangs}
    return "waiting for " + (", ".join(f"{n} more of {name}" for name, n in short.items() if n > 0) or "its group")


def holds_lost(nodes: Iterable[str]) -> str:
    """Told when held room went away with its node (semantics R3)."""
    return f"held room was lost on {', '.join(nodes)}; the members are placed anew"


def strict_holds_nothing(number: int) -> str:
    """Told when a group that holds has become Strict (semantics I5, T1)."""
    released = f"{_some(number, 'hold')} {'was' if number == 1 else 'were'} released"
    return f"the group has become Strict, which holds nothing between rounds; {released}"


def yielded(beneficiary: str) -> str:
    """Told on a group that gave its holds up (semantics D1)."""
    return f"gave up its held nodes so that {beneficiary} could start"


def waiting_for_sibling(gang_id: str, message: str) -> str:
    """Told on the other gangs of a group when one of them is not ready."""
    return f"waiting for gang {gang_id} of the same group: {message}"


def permitted(placed: int) -> str:
    """Told when a group starts."""
    if placed == 1:
        return "1 pod has found a node and is bound"
    return f"{placed} pods have found a node and are bound together"


def _some(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
