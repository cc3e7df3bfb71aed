"""Members to come: stand-in pods for them before their gang starts, and the room kept for them
afterwards (semantics B8).

Invariant: derived from the record of the gang alone. The room is in the stamp of the Permit, which
the API server stores in the same write as the bind, so a restart finds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import structs

from gangsched.api import keys
from gangsched.api.later_members import MOST_TO_COME
from gangsched.api.problem import Problem
from gangsched.model.gang import Gang, Placement
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.lazy_pods import StandIns, stand_in
from gangsched.model.objects import Pod, PromisedRoom, Shape, Toleration
from gangsched.model.resources import PODS, ResourceVector, from_dict
from gangsched.state.gangs import GangRecord
from gangsched.state.members import STARTED, Member, State

PLACED = (*sorted(STARTED), State.KEPT, State.HELD)


def with_members_to_come(
    gang: Gang,
    record: GangRecord,
    policy: GpuPolicy,
) -> Gang:
    """The gang with stand-ins for its members to come or, after its start, with the room kept for
    them.
    """
    first = record.spec.first if record.spec is not None else 0
    # After the start nothing more is planned for them: only what the stamp promises counts.
    if gang.bound < gang.total and record.passed is not None:  # also while it waits for claims (B7)
        promised = _promised(gang, record)
        if not promised:
            return gang

        return structs.replace(gang, promised=promised)

    # It is found anew with each view, since a PodGroup may state minResources meanwhile.
    record.room_problem = None
    if not first or not gang.pending or not first <= gang.quorum < gang.total:
        return gang

    present = []
    for member in record.of(State.PENDING, State.RETRY, *PLACED):
        present.append(member.pod)

    number = gang.total - gang.quorum

    shape = _shape_to_come(gang, record, present, number, policy)
    if shape is None:
        record.room_problem = _unknown(record, number)
        # It starts without room for the others: a leader that waited for what nobody states would
        # wait forever.
        return structs.replace(gang, min_member=first)

    priority = min(pod.priority for pod in present)
    known = frozenset(pod.index for pod in present)
    return structs.replace(
        gang, to_come=StandIns(gang.id, number, gang.total, shape, priority, known)
    )


class SiblingWorkers:
    """Requests of workers of LeaderWorkerSets, by set and group, for groups of the set that have no
    workers yet.
    """

    def __init__(self) -> None:
        self._of_set: dict[str, dict[str, Shape]] = {}

    def note(self, record: GangRecord) -> None:
        """Record the shape of the gang's workers, and set `record.worker` to the shape in another
        group of its set.
        """
        if record.spec is None or not record.spec.first:
            return

        groups = self._of_set.get(_set_of(record.id), {})
        # Index 0 is the leader, which may ask for something else.
        worker = None
        for member in record.members.values():
            if member.pod.index > 0:
                worker = member.pod.shape
                break

        if worker is not None:
            groups = self._of_set.setdefault(_set_of(record.id), groups)
            groups[record.id] = worker

        record.worker = next(
            (shape for gang_id, shape in groups.items() if gang_id != record.id), None
        )

    def forget(self, gang_id: str) -> None:
        """Drop a gang that is gone."""
        groups = self._of_set.get(_set_of(gang_id), {})
        if groups.pop(gang_id, None) is not None and not groups:
            del self._of_set[_set_of(gang_id)]


def _set_of(gang_id: str) -> str:
    """Name and revision of the LeaderWorkerSet whose group is a gang: its id without the index of
    the group.
    """
    name, _, revision = gang_id.rpartition("-")
    return f"{name.rpartition('-')[0]} {revision}"


def promised_room(members: Iterable[Member], *, is_trusted: bool) -> PromisedRoom | None:
    """The room in the newest stamp of started members.

    A stamp that the pod's owner may have written promises nothing. Exception: stamps are trusted
    until it is known whether a policy guards them, so that room of an earlier process is not lost.
    """
    newest = -1
    found = None

    for member in members:
        stamp = member.wait.permit if member.wait is not None else member.permit
        # A stamp of a member that waits for its claims is our own, and not written yet.
        is_good = member.wait is not None or member.is_proven or is_trusted
        if stamp is not None and stamp.room is not None and stamp.epoch > newest and is_good:
            newest = stamp.epoch
            found = stamp.room

    return found


def _promised(gang: Gang, record: GangRecord) -> tuple[Placement, ...]:
    """Where room is left for members to come: as many as have none yet, on the nodes of
    the Permit.
    """
    room = promised_room(record.of(*STARTED), is_trusted=record.trusts_stamps)
    # The stamp stays on the pods for as long as they run. That its promise has ended is only known
    # here.
    if room is None or room == record.room_over:
        return ()

    placed = record.of(*PLACED)
    on = Counter(member.node for member in placed)

    # However many places the stamp names: members that came on other nodes end theirs as well (B8).
    left = min(gang.total - len(placed) - gang.succeeded, MOST_TO_COME)
    shape = record.shape_to_come(("promised", room.each), lambda: Shape(requests=room.each))
    priority = min((member.pod.priority for member in placed), default=0)
    found: list[Placement] = []

    for node, number in room.places:
        # The stamp counts all members on a node, those that were bound with it included.
        open_there = (
            min(number - on[node], left - len(found)) if node not in record.room_lost else 0
        )
        pods = (
            stand_in(gang.id, f"{node}/{serial}", shape, priority) for serial in range(open_there)
        )
        found.extend(Placement(pod, node) for pod in pods)

    return tuple(found)


def _shape_to_come(
    gang: Gang,
    record: GangRecord,
    present: Sequence[Pod],
    number: int,
    policy: GpuPolicy,
) -> Shape | None:
    """What a member to come is taken to ask for: what a worker of a sibling group does, else its
    share of minResources; None if neither is known.
    """
    if record.worker is not None:
        worker = record.worker
        # The worker's node selector may have the domain of its own group, as with exclusive
        # placement; this group goes elsewhere.
        own = frozenset(gang.constraints.topology)
        return record.shape_to_come(("like", worker, own), lambda: _free(worker, own))

    first = present[0].shape
    spec = record.spec
    if spec is not None and spec.is_minimum_of_owner:
        # The pods of one owner have one template.
        return record.shape_to_come(
            ("template", first),
            lambda: _free(first, frozenset()),
        )

    if not gang.min_resources:
        return None

    asked = Counter[str]()
    for pod in present:
        asked.update(dict(pod.shape.requests))

    # Rounded up, so that the shares together are never less than what minResources leaves.
    shares = {}
    for name, amount in gang.min_resources:
        shares[name] = -(-(amount - asked[name]) // number)

    # What minResources does not name is not known to be zero: LeaderWorkerSet adds up requests
    # before the API server has copied limits into them, as it does for the GPUs of most manifests.
    unnamed = {}
    for name, amount in first.requests:
        if name not in shares:
            unnamed[name] = amount

    requests = from_dict({**unnamed, **shares, PODS: 1})
    # Only the slot of a pod: nothing is known that room could be kept for.
    if len(requests) < 2:
        return None

    return record.shape_to_come(("share", requests, first), lambda: _like(first, requests, policy))


def _free(worker: Shape, levels: frozenset[str]) -> Shape:
    """The shape of a worker of another group, without what ties it to its own group and domain."""
    selector = tuple(each for each in worker.node_selector if each[0] not in levels)
    return Shape(
        requests=worker.requests,
        node_selector=selector,
        required=worker.required,
        tolerations=worker.tolerations,
    )


def _like(
    first: Shape,
    requests: ResourceVector,
    policy: GpuPolicy,
) -> Shape:
    """A shape with these requests; it may use the nodes of a present member that asks for the same
    resources.

    Workers that ask for others may have other nodes than their leader, and tolerate the taints of
    what they ask for, as the admission plugin ExtendedResourceToleration has it.
    """
    if {name for name, _ in first.requests} >= {name for name, _ in requests}:
        return Shape(
            requests=requests,
            node_selector=first.node_selector,
            required=first.required,
            tolerations=first.tolerations,
        )

    devices = tuple(
        Toleration(name, "Exists") for name, _ in requests if policy.is_accelerator(name)
    )
    return Shape(requests=requests, tolerations=(*first.tolerations, *devices))


def _unknown(record: GangRecord, number: int) -> Problem:
    text = (
        f"No room is kept for the {number} members to come of gang {record.id}, because their"
        " requests are unknown: set minResources in its PodGroup."
    )
    return Problem(keys.LWS_SIZE, "", "no room", text)
