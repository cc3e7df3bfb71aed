"""Suggestions for a gang that does not fit: the smallest change of each kind, each verified by a
plan.

Invariant: only changes with which a plan starts the gang are suggested. Node names are not
revealed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush

import msgspec
from msgspec import structs

from gangsched.core.diagnosis import shortage
from gangsched.core.filter import static_fit
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Pod, Shape, Taint, Toleration
from gangsched.model.resources import format_quantity
from gangsched.model.snapshot import Snapshot
from gangsched.model.text import counted, named
from gangsched.state.hypothetical import with_minimum
from gangsched.visibility.reviews.review import Reviewer, Tried, with_pods, without_value

KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
TROUBLES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Keys of taints that tell the state of a node, such as unreachable."""


def suggestions(reviewer: Reviewer, tried: Tried, *, sees_nodes: bool) -> Iterator[str]:
    """Yield sentences that suggest the smallest change of each kind; taint values only for users
    who may list nodes.
    """
    if not isinstance(tried.group.root, str):
        return  # its parts say what each of them lacks

    for look in (
        partial(_freeing, reviewer, tried),
        partial(_tolerating, reviewer, tried, sees_nodes=sees_nodes),
        partial(_anywhere, reviewer, tried),
    ):
        found = look()
        if found:
            yield found

    minimum = _smaller(reviewer, tried)
    if minimum:
        gang = tried.group.gangs[0]
        # Such as "Job ml/train makes 3": it is the number to change.
        note = f" ({gang.min_note})" if gang.min_note else ""
        yield f"a minimum of {minimum} instead of {gang.min_member}{note} would start now"


def _smaller(reviewer: Reviewer, tried: Tried) -> int:
    """The largest minimum that would start, 0 for none."""
    low = 0
    high = tried.group.gangs[0].min_member
    # Bisection: a smaller minimum never fits worse.
    while high - low > 1:
        middle = (low + high) // 2
        if reviewer.attempt(with_minimum(tried.group, middle)).placements:
            low = middle
        else:
            high = middle

    return low


def _freeing(reviewer: Reviewer, tried: Tried) -> str:
    """How much of the scarcest resource would have to be free, on the fewest nodes that come
    closest.
    """
    (gang,) = tried.group.gangs
    shapes = Counter(pod.shape for pod in gang.pending)
    if len(shapes) != 1 or not tried.verdict.needs:
        return ""

    ((shape, number),) = shapes.items()
    policy = reviewer.policy
    ledger = Ledger(tried.snapshot, policy=policy)
    empty = Ledger(tried.snapshot, empty=True, policy=policy)
    attempt = PlacementAttempt(tried.group, ledger)
    scarcest = shortage(shape, attempt, empty).scarcest

    missing = min(number, gang.min_member) - scarcest.takes
    if missing <= 0 or scarcest.never:
        return ""

    lacking = _lacking(shape, scarcest.resource, scarcest.asked, missing, tried.snapshot)
    row = tried.snapshot.resources[scarcest.resource]

    def freed(snapshot: Snapshot) -> Snapshot:
        free = snapshot.free.copy()
        for node, amount in lacking.items():
            free[row, node] += amount

        return structs.replace(snapshot, free=free)

    if not lacking or not reviewer.attempt(tried.group, freed).placements:
        return ""

    amount = format_quantity(scarcest.resource, sum(lacking.values()))
    return (
        f"{amount} more {scarcest.resource} free on {counted(len(lacking), 'node')} would let it"
        " start now"
    )


def _lacking(
    shape: Shape,
    resource: str,
    asked: int,
    pods: int,
    snapshot: Snapshot,
) -> dict[int, int]:
    """Amounts that `pods` more pods lack, by node, each where the lack is least; {} if nodes offer
    too little.
    """
    row = snapshot.resources[resource]
    offered = snapshot.allocatable[row]
    free = snapshot.free[row].clip(min=0)
    nodes = [
        n
        for n in static_fit(shape, snapshot.table).mask.nonzero()[0].tolist()
        if offered[n] >= asked
    ]

    # The first entry is what the node lacks for one pod more; the last is what others use there.
    heap = [(int(asked - free[n] % asked), n, int(offered[n] - free[n])) for n in nodes]
    heap = [entry for entry in heap if entry[0] <= entry[2]]
    heapify(heap)
    lacking: Counter[int] = Counter()

    while heap and pods:
        amount, node, taken = heappop(heap)
        lacking[node] += amount
        pods -= 1

        if taken - amount >= asked:
            heappush(heap, (asked, node, taken - amount))

    return {} if pods else dict(lacking)


def _tolerating(reviewer: Reviewer, tried: Tried, *, sees_nodes: bool) -> str:
    """The taints that keep it off nodes where it would start: to be tolerated, or to go away."""
    # First with all tolerations: which taints matter follows from the nodes that the plan then
    # uses.
    everything = (Toleration(operator="Exists"),)
    changed = reviewer.attempt(
        with_pods(tried.group, _of_shape(lambda shape: replace(shape, tolerations=everything)))
    )
    if not changed.placements:
        return ""

    table = changed.snapshot.table
    tolerated = {pod.uid: pod.shape.tolerations for pod in tried.group.gangs[0].pending}
    own: set[str] = set()
    troubles: set[str] = set()
    troubled: set[str] = set()

    for placement in changed.placements:
        for taint in table.nodes[table.index[placement.node]].taints:
            if taint.effect in KEEPS_OFF and not any(
                _tolerates(toleration, taint) for toleration in tolerated[placement.pod.uid]
            ):
                text = str(taint if sees_nodes else without_value(taint))
                if taint.key.startswith(TROUBLES):
                    troubles.add(text)
                    troubled.add(placement.node)
                else:
                    own.add(text)

    # To tolerate that a node is lost would start the gang where it cannot run.
    parts = [f"a toleration of {named(sorted(own))}"] if own else []
    if troubles:
        parts.append(f"{counted(len(troubled), 'node')} without {named(sorted(troubles))}")

    return f"{' and '.join(parts)} would let it start now" if parts else ""


def _anywhere(reviewer: Reviewer, tried: Tried) -> str:
    """Whether it is only its own choice of nodes."""
    shapes = {pod.shape for pod in tried.group.gangs[0].pending}
    if not any(shape.node_selector or shape.required is not None for shape in shapes):
        return ""

    change = _of_shape(lambda shape: replace(shape, node_selector=(), required=None))
    if not reviewer.attempt(with_pods(tried.group, change)).placements:
        return ""

    return "without its node selector and required node affinity it would start now"


def _of_shape(change: Callable[[Shape], Shape]) -> Callable[[Pod], Pod]:
    """Changes the shapes of pods; equal pods keep sharing one."""
    made: dict[Shape, Shape] = {}

    def of_pod(pod: Pod) -> Pod:
        if pod.shape not in made:
            made[pod.shape] = change(pod.shape)

        return msgspec.structs.replace(pod, shape=made[pod.shape])

    return of_pod


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """v1.Toleration.ToleratesTaint."""
    if toleration.effect not in {"", taint.effect} or (
        toleration.key and toleration.key != taint.key
    ):
        return False

    return toleration.operator == "Exists" or toleration.value == taint.value
