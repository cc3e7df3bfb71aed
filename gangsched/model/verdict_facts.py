"""Facts: what a decision found, as values. `gangsched.sentences` makes sentences of them.

Invariant: a fact is frozen, hashable and compared by value, so that equal facts give equal
sentences. It holds numbers and names, never a sentence. The exceptions are the texts of others:
the reasons of filters, which are kube-scheduler's words, and what the API's reader found wrong.
Facts are structs, since a plan makes hundreds: a frozen dataclass takes ten times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.resources import ResourceVector
from gangsched.model.wait_facts import WaitFact

if TYPE_CHECKING:
    from gangsched.model.capacity_facts import CapacityFact
    from gangsched.model.gang import Refusal
    from gangsched.model.preemption import NotHelpful


class Worded(msgspec.Struct, frozen=True, gc=False):
    """A text that somebody else worded, such as what is wrong with a PodGroup. `now` changes more
    often than `text`.
    """

    text: str = ""
    now: str = ""


# --- nodes --------------------------------------------------------------------------------------


class ExcludedNodes(msgspec.Struct, frozen=True, gc=False):
    """How many `nodes` one filter or rule excludes, in kube-scheduler's words; `eligible` nodes
    could be used if other pods were not there.
    """

    reason: str
    nodes: int
    eligible: bool = True

    @property
    def is_lack(self) -> bool:
        """Whether the nodes lack a resource."""
        return self.reason.startswith("Insufficient ") or self.reason == "Too many pods"


class NodeCounts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why none of `total` nodes takes a pod. Each node is counted under the first filter that
    excludes it, except that some filters give several reasons for one node.

    `of_pod` is a cause that no node can help, such as a missing claim; "" without one.
    """

    total: int
    excluded: tuple[ExcludedNodes, ...] = ()
    of_pod: str = ""

    @property
    def lacks_room(self) -> bool:
        """Whether a node is excluded for lack of a resource."""
        return any(count.is_lack for count in self.excluded)

    @property
    def eligible(self) -> int:
        """Number of nodes that no filter excludes whatever runs there."""
        return self.total - sum(count.nodes for count in self.excluded if not count.eligible)


class Amounts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One resource on the nodes that a shape may use, in exact units.

    `asked` is the request of each pod. `offered` and `free_on_one` are the largest values of any
    single node, `offered_in_all` and `free_in_all` the sums. `takes` is the number of pods that fit
    into the free amounts, summed over the nodes.
    """

    resource: str
    asked: int
    offered: int = 0
    offered_in_all: int = 0
    free_on_one: int = 0
    free_in_all: int = 0
    takes: int = 0

    @property
    def never(self) -> bool:
        """Whether a pod requests more than any node offers."""
        return self.offered < self.asked


class Shortage(msgspec.Struct, frozen=True, gc=False):
    """Why there is no room for pods of one shape.

    `scarcest` is the resource that runs out first; `nodes` counts the eligible nodes, and
    `empty_room` the pods that would fit on them if they were empty. `closed` lists why nodes that
    offer enough are not eligible. If no node offers the scarcest resource at all, `instead` lists
    the extended resources of the cluster.
    """

    scarcest: Amounts
    nodes: int
    empty_room: int
    closed: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()

    @property
    def never(self) -> bool:
        """Whether no node takes such a pod, even if it were empty."""
        return bool(self.nodes) and not self.empty_room


class NoNode(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod finds no node that has room for it."""

    pod: str
    requests: ResourceVector
    nodes: NodeCounts
    short: Shortage


class HomeFull(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member of a gang that runs finds no room at its home, beyond which it may not go (L6).

    Of the `nodes` there, `free` have room for it, and `closed` take no pod like it whatever runs
    there; `lower` have pods of lower priority. It waits `since_s`, in epoch seconds. `grows`:
    autoscalers add nodes to such a domain.
    """

    pod: str
    requests: ResourceVector
    home: str
    nodes: int
    free: int
    closed: int
    lower: int
    since_s: int
    grows: bool = False


# --- gangs that lack room -----------------------------------------------------------------------


class GangNeed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a gang needs to start: this many `pods`, which are `further` ones if others are there,
    in one domain of each of the `levels` (node labels), in `slices`.

    `requests` of each of these pods, None if they differ.
    """

    gang: str
    pods: int
    further: bool = False
    requests: ResourceVector | None = None
    levels: tuple[str, ...] = ()
    slices: tuple[SliceLayer, ...] = ()


class RoomShort(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Totals show that a gang does not fit (P4): there is `room` for so many of the pods, and on
    empty nodes for `empty_room`. Both are upper bounds, `room` only unless `exact`.

    `pod` has the requests with the least room. `limits` are the resources by which alone no more
    pods like it fit on the empty nodes; () if these hold enough, or something else limits them.
    """

    need: GangNeed
    pod: str
    requests: ResourceVector
    short: Shortage
    room: int
    exact: bool
    empty_room: int
    nodes: NodeCounts
    limits: tuple[str, ...] = ()


class WhenEmpty(msgspec.Struct, frozen=True, gc=False):
    """The domain that would hold most of the pods by totals if all its nodes were empty, how many
    at most, and the resources that limit it; () if something else does.
    """

    name: str
    number: int
    limits: tuple[str, ...] = ()


class DomainsShort(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the domains of the labels `keys` lack. By totals `best` takes `takes` of the `needed`
    pods, at most that many if `at_most`; if `home`, other members are there already.

    Of `number` domains, 0 if no node has the labels, `few` have too little room by totals. Of the
    others, pods were packed into none, which is proven if `exact`. `when_empty` is None if a domain
    holds enough when it is empty, or if that is unknown.
    """

    keys: tuple[str, ...]
    number: int
    best: str
    takes: int
    needed: int
    at_most: bool = False
    home: bool = False
    few: int = 0
    exact: bool = True
    when_empty: WhenEmpty | None = None


class DevicesShort(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Each pod of a gang asks for `by_pod` devices of a class, all that must start for `needed`.
    The nodes that they may use have `free` ones that match, one of them at most `on_one`.
    """

    device_class: str
    by_pod: int
    needed: int
    free: int
    on_one: int


class MemberFails(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A round placed `placed` of the `needed` pods of the group; then `tried` found no node (R2).
    No other choice of nodes takes more if `most`.

    `pod` is the first pending member that is equal to `tried`. Without the pods that the round
    placed, `alone` nodes take it; `apart` are the reasons for which they then exclude it, other
    than lack of a resource. `devices` are counted if only they are lacking.
    """

    need: GangNeed
    pod: str
    tried: str
    requests: ResourceVector
    short: Shortage
    nodes: NodeCounts
    placed: int
    needed: int
    most: bool = False
    alone: int = 0
    apart: tuple[str, ...] = ()
    devices: DevicesShort | None = None
    domains: DomainsShort | None = None


class MemberHinders(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A gang waits for one pod, for a cause that nodes cannot help, such as a missing claim."""

    gang: str
    pod: str
    cause: Refusal
    placed: int
    needed: int
    domains: DomainsShort | None = None


class ResourcesShort(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The `asked` minResources are not free at the same time; `short` is missing (P4). `offered` is
    what the eligible nodes have of those that are missing even when they are empty.
    """

    gang: str
    asked: ResourceVector
    short: ResourceVector
    offered: ResourceVector = ()


# --- slices -------------------------------------------------------------------------------------


class NoDomainForSlice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """No domain of `level` takes one slice of `size` pods; the best takes `takes` of them, at most
    that many if `at_most`.
    """

    level: str
    size: int
    best: str
    takes: int
    at_most: bool = False


class FewSlices(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """By totals, the domains of `level` take `room` of the `needed` slices of `size` pods, at most
    that many if `at_most`.
    """

    level: str
    size: int
    room: int
    needed: int
    at_most: bool = False


class SlicesScattered(msgspec.Struct, frozen=True, gc=False):
    """Totals suffice, but no choice of domains and nodes takes the slices."""

    levels: tuple[str, ...]


class SliceHomeFull(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The domain of a slice's other members has room for `room` of its `needed` waiting ones."""

    domain: str
    room: int
    needed: int


class NoNodeHas(msgspec.Struct, frozen=True, gc=False):
    """No node has the label of a required level."""

    level: str


SliceLack: TypeAlias = NoDomainForSlice | FewSlices | SlicesScattered | SliceHomeFull | NoNodeHas


class SlicesFail(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A gang's slices have no place. `when_empty` is about pods of one slice; None if the largest
    domain would hold a slice.
    """

    need: GangNeed
    lack: SliceLack | None
    domains: DomainsShort | None = None
    when_empty: WhenEmpty | None = None


# --- members ------------------------------------------------------------------------------------


class MembersMissing(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A gang has `ready` members of the `minimum`; each other one is counted once (P1)."""

    gang: str
    minimum: int
    ready: int
    gated: int = 0
    foreign: int = 0
    missing: int = 0
    terminating: int = 0
    note: str = ""


class UncountedMembers(msgspec.Struct, frozen=True, gc=False):
    """A gang has enough members, but its match policy needs `lack` more pending ones (B1)."""

    gang: str
    policy: str
    lack: int


class ClaimFull(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """`needed` members must share a ResourceClaim with room for `left` more of `most` pods; it is
    named only to its own namespace.
    """

    claim: str
    needed: int
    left: int
    most: int


class ClaimOfOnePod(msgspec.Struct, frozen=True, gc=False):
    """`needed` members of a gang must use a claim that only one pod may use; it is named only to
    its own namespace.
    """

    gang: str
    claim: str
    needed: int


class UnsupportedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod uses features that are not supported, in the words of who read it."""

    pod: str
    features: tuple[str, ...]


class TimedOutEarlier(msgspec.Struct, frozen=True, gc=False):
    """`pods` members of a gang have the timeout annotation (T3)."""

    gang: str
    pods: int


class WaitTimeOver(msgspec.Struct, frozen=True, gc=False):
    """The wait time has expired (T2); `lacking` is the number of further members by gang."""

    seconds: float
    lacking: tuple[tuple[str, int], ...]


class SetAsideByOrder(msgspec.Struct, frozen=True, gc=False):
    """An administrator set a gang aside."""

    gang: str


class NotPlanned(msgspec.Struct, frozen=True, gc=False):
    """The group could not be planned; `reference` finds the fault in the log."""

    reference: str


class TooMuchWork(msgspec.Struct, frozen=True, gc=False):
    """One decision about so many pods with so many shapes exceeds the work of a plan."""

    pods: int
    shapes: int


class DeviceSearchEnded(msgspec.Struct, frozen=True, gc=False):
    """The search for devices was ended early."""


# --- room that is held --------------------------------------------------------------------------


class HoldsNode(msgspec.Struct, frozen=True, gc=False):
    """A pod holds room on a node until the rest of its gang fits (R3)."""

    pod: str
    node: str
    gang: str


class GroupHolds(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A group holds `held` nodes and waits for `lacking` members by gang; the first member without
    a node has the refusal `refused` (R3).
    """

    group: str
    held: int
    lacking: tuple[tuple[str, int], ...]
    pod: str = ""
    refused: Refusal | None = None


class HoldsLost(msgspec.Struct, frozen=True, gc=False):
    """Nodes that were held no longer take the members (R3)."""

    nodes: tuple[str, ...]


class HoldsReleased(msgspec.Struct, frozen=True, gc=False):
    """A group that has become Strict released its holds (I5, T1)."""

    number: int


class Yielded(msgspec.Struct, frozen=True, gc=False):
    """A group released its holds for `beneficiary`, "" for one of another namespace (D1)."""

    beneficiary: str


class OfAnotherNamespace(msgspec.Struct, frozen=True, gc=False):
    """The cause is in another namespace, whose names this one does not learn (I4)."""


# --- groups and trees ---------------------------------------------------------------------------


class WaitsForSibling(msgspec.Struct, frozen=True, gc=False):
    """Another gang of the group is not ready, because of `cause`."""

    gang: str
    cause: Refusal


class ChildrenMissing(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Too few children of a composite are ready; `part` is the first that is not, with its
    refusal (I9).
    """

    composite: str
    ready: int
    minimum: int
    note: str = ""
    part: str = ""
    is_gang: bool = False
    cause: Refusal | None = None


class NoChoice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """No choice of `lack` of the `ready` children can be placed, which is `proven` or was tried;
    `first` is the fact about the first choice.
    """

    composite: str
    lack: int
    ready: int
    proven: bool
    first: Fact


class Placed(msgspec.Struct, frozen=True, gc=False):
    """So many members start."""

    pods: int


# --- preemption ---------------------------------------------------------------------------------


class PodsEnd(msgspec.Struct, frozen=True, gc=False):
    """So many pods of the gang `name` are to end; `is_gang` is False for one pod without a gang."""

    name: str
    pods: int
    is_gang: bool = True


class Nominated(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A group starts on `nodes` once `pods` pods have ended, and gives up at epoch second
    `until_s`.

    `named` are the first of those pods that the group may know by name, most pods first.
    """

    nodes: tuple[str, ...]
    pods: int
    named: tuple[PodsEnd, ...]
    until_s: int


class BeingPreempted(msgspec.Struct, frozen=True, gc=False):
    """Bound members of the group are evicted (V17)."""


class Evicting(msgspec.Struct, frozen=True, gc=False):
    """The evictions of the group's victims are under way (V11)."""


Fact: TypeAlias = (
    Worded
    | NodeCounts
    | NoNode
    | HomeFull
    | RoomShort
    | MemberFails
    | MemberHinders
    | ResourcesShort
    | SlicesFail
    | SliceLack
    | MembersMissing
    | UncountedMembers
    | ClaimFull
    | ClaimOfOnePod
    | UnsupportedPod
    | TimedOutEarlier
    | WaitTimeOver
    | SetAsideByOrder
    | NotPlanned
    | TooMuchWork
    | DeviceSearchEnded
    | HoldsNode
    | GroupHolds
    | HoldsLost
    | HoldsReleased
    | Yielded
    | OfAnotherNamespace
    | WaitsForSibling
    | ChildrenMissing
    | NoChoice
    | Placed
    | Nominated
    | BeingPreempted
    | Evicting
    | WaitFact
)
"""What a refusal is about."""


def subject(fact: Fact) -> str:
    """The id of the one gang that a fact is about; "" for the whole group, a pod or several
    gangs.
    """
    match fact:
        case RoomShort() | MemberFails() | SlicesFail():
            return fact.need.gang
        case (
            MemberHinders()
            | ResourcesShort()
            | MembersMissing()
            | UncountedMembers()
            | TimedOutEarlier()
            | SetAsideByOrder()
        ):
            return fact.gang
        case _:
            return ""


def needs_other_nodes(fact: Fact) -> bool:
    """Whether nodes like the existing ones do not help, however many there are: each is too small
    for a pod, or none has a required label.
    """
    match fact:
        case RoomShort() | NoNode():
            return fact.short.never
        case MemberFails():
            return fact.short.never or _has_no_domain(fact.domains)
        case SlicesFail():
            return isinstance(fact.lack, NoNodeHas) or _has_no_domain(fact.domains)
        case _:
            return False


def _has_no_domain(domains: DomainsShort | None) -> bool:
    return domains is not None and not domains.number


Detail: TypeAlias = "Worded | NotHelpful | CapacityFact"
"""What is added to the fact of a refusal: why preemption does not help, what is reserved, and what
autoscalers are asked for.
"""
