"""Members to come: stand-ins for members that are created only after other members of their gang
run (semantics B8).

Invariant: pure functions. In a plan a stand-in is a pending member like any other, so rounds,
searches, preemption and reservations treat both alike. Only the finished verdict distinguishes
them: the place of a stand-in is promised room, not a bind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from msgspec import structs

from gangsched.core import findings
from gangsched.core.queue_sort import in_member_order
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Gang, is_to_come, room_key
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.lazy_pods import LazyPods
from gangsched.model.objects import Pod
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason


def with_all(gang: Gang, policy: GpuPolicy) -> Gang:
    """The gang as plans see it: members to come are pending, and part of the minimum."""
    if not gang.to_come:
        return gang

    return structs.replace(
        gang,
        min_member=gang.least,
        pending=AllMembers(tuple(gang.pending), gang.to_come, policy),
    )


@dataclass(frozen=True, slots=True, eq=False)
class AllMembers(LazyPods):
    """The members of a gang and those to come, in member order (Q5)."""

    present: tuple[Pod, ...]
    to_come: Sequence[Pod]
    policy: GpuPolicy

    def __len__(self) -> int:
        """Number of all of them."""
        return len(self.present) + len(self.to_come)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same members."""
        if not isinstance(other, AllMembers):
            return False

        return (
            self.present == other.present
            and self.to_come == other.to_come
            and self.policy == other.policy
        )

    def __hash__(self) -> int:
        """Pods have no hash, and the members to come say which gang it is."""
        return hash(self.to_come)

    def make(self) -> tuple[Pod, ...]:
        """Make the members to come, and sort all."""
        return in_member_order((*self.present, *self.to_come), self.policy)


def split(verdict: Verdict) -> Verdict:
    """The verdict with the places of members to come moved from `binds` to `rooms`."""
    rooms = []
    present = []
    for placement in verdict.binds:
        if is_to_come(placement.pod.uid):
            rooms.append(placement)
        else:
            present.append(placement)

    if not rooms:
        return verdict

    binds = tuple(present)
    if verdict.reason is not Reason.SCHEDULED:
        return structs.replace(verdict, binds=binds, rooms=tuple(rooms))

    permitted = findings.permitted(len(binds))
    return structs.replace(verdict, binds=binds, rooms=tuple(rooms), told=permitted)


def taken(gang: Gang, verdict: Verdict) -> set[str]:
    """Uids of the members to come whose room newly placed members take: a member to come on the
    same node if there is one, otherwise any of the gang.

    Each member that starts, on whichever node, reduces the members to come by one.
    """
    left = {placement.pod.uid: placement.node for placement in gang.promised}
    own = {pod.uid for pod in (*gang.pending, *gang.retry)} if left else frozenset[str]()
    used: set[str] = set()

    for placement in verdict.binds:
        if placement.pod.uid in own and left:
            # Room on the node itself first; otherwise the one that was promised last.
            on_the_node = (uid for uid, node in left.items() if node == placement.node)
            last = next(reversed(left))
            uid = next(on_the_node, last)

            del left[uid]
            used.add(uid)

    return used


def fulfill(gangs: Iterable[Gang], verdict: Verdict, ledger: Ledger) -> None:
    """Record that members to come now exist and are placed, so that their room is no longer
    promised.
    """
    for gang in gangs:
        if gang.promised:
            ledger.fulfill(room_key(gang.id), taken(gang, verdict))


def own_room(gang: Gang, ledger: Ledger) -> AbstractContextManager[None]:
    """Inside the context, the gang may use the room that is promised to its members to come."""
    return _own_room(gang, ledger) if gang.promised else nullcontext()


@contextmanager
def _own_room(gang: Gang, ledger: Ledger) -> Iterator[None]:
    own = ledger.respected(room_key(gang.id))
    ledger.promise(own, -1)

    try:
        yield
    finally:
        ledger.promise(own, 1)
