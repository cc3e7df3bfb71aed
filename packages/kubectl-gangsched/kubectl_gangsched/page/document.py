"""The document that the page shows: what it knows about a cluster, at one moment or several.

Invariant: the page is a function of this document alone. In JSON, names are in camelCase and a
field that has its default is left out. Times are seconds since the epoch (`clock` "wall") or since
a simulation began ("simulated"). What is not known is null or absent, and `Unknown` says why.

Ids: a gang is "namespace/name"; a plain pod is "pod:namespace/name"; "others" is everybody whom the
user may not see.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

FORMAT = 1
OTHERS = "others"
PLAIN = "pod:"
"""What the id of a plain pod begins with: a gang could have the same name."""

Source: TypeAlias = Literal["live", "snapshot", "replay", "simulation"]
Clock: TypeAlias = Literal["wall", "simulated"]
Order: TypeAlias = Literal["scheduler", "age"]
BarKind: TypeAlias = Literal["waited", "happened", "expected", "promised"]


class PageRecord(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of all records of the document."""


class Devices(PageRecord):
    """Accelerators of one kind on a node."""

    #: The resource, such as nvidia.com/gpu or nvidia.com/mig-1g.5gb, or a DRA device class.
    resource: str
    #: How many the node offers to pods.
    total: int
    #: How many a new pod could get; 0 on a node that takes none.
    free: int = 0
    #: Units by the id of who uses them.
    users: dict[str, int] = {}


class Reservation(PageRecord):
    """Room that is reserved for a gang that waits."""

    #: The id of the gang.
    gang: str
    #: When it starts at the latest; null for a fence, and where it is not known.
    start_s: int | None = None
    #: "timed" or "fence" (whole nodes, until they are empty).
    kind: str = ""


class PageNode(PageRecord):
    """One node; its key is its name."""

    #: Its domains, as many as `Moment.levels`, the largest first; "" where it has no such label.
    path: list[str] = []
    #: The product of its accelerators, by its label.
    product: str = ""
    devices: list[Devices] = []
    #: Why new pods get nothing there: "not ready", "unreachable" or "cordoned"; "" if they do.
    closed: str = ""
    #: Its taints, as "key=value:Effect".
    taints: list[str] = []
    reserved: list[Reservation] = []
    #: The ids of gangs and pods that are nominated to it.
    nominated: list[str] = []
    #: The ids of gangs that hold room on it until they have their minimum.
    held: list[str] = []


class Need(PageRecord):
    """So many pods that ask for the same."""

    pods: int
    #: What each of them asks for, as quantities by resource.
    requests: dict[str, str] = {}


class Lack(PageRecord):
    """What a gang lacks of the scarcest resource, as quantities."""

    resource: str
    #: How much is missing on the nodes that it may use.
    amount: str = ""
    #: The most that is free on one node.
    free_on_one_node: str = ""


class PageGang(PageRecord):
    """One gang as a row; its key is its id. `Detail` has the rest."""

    namespace: str
    name: str
    #: It has a pod that waits for a node: then it is in `Moment.queue`.
    waits: bool = False
    #: The sentence that `kubectl gangsched why` begins with.
    sentence: str = ""
    phase: str = ""
    reason: str = ""
    #: Number of pods, of those that have a node, and of those that must have one to start.
    pods: int = 0
    bound: int = 0
    min_member: int | None = None
    priority: int | None = None
    needs: list[Need] = []
    lacks: Lack | None = None
    created_s: int | None = None
    waiting_since_s: int | None = None
    started_s: int | None = None
    #: The declared or learned run time; null if there is none.
    run_time_s: int | None = None
    expected_end_s: int | None = None
    #: The start that it was told, at the latest.
    promised_s: int | None = None
    #: What it was told of its reservation.
    promise: str = ""
    reserved: Reservation | None = None
    #: It started, and has fewer members than its minimum.
    broken: bool = False
    problems: list[str] = []
    #: The gangs that start together with it, itself among them; the ids.
    group: list[str] = []
    #: The name of the parent of its tree, in its namespace.
    parent: str = ""


class PageMember(PageRecord):
    """A pod of a gang."""

    name: str
    #: A word such as pending, held, binding, bound, gated, succeeded, failed or terminating.
    state: str
    node: str = ""
    reason: str = ""
    message: str = ""


class PageDomain(PageRecord):
    """A domain of a level that the gang requires."""

    domain: str
    #: How many of the needed pods it holds, and how many more it would have to.
    holds: int
    lacks: int
    refuted_by: str = ""


class PageEvent(PageRecord):
    """Something that happened to a gang."""

    at_s: int
    #: Created, Started, Waits, Reserved, Preempting, Preempted, MemberLost, …, or the reason of an
    #: Event.
    what: str
    #: When it happened first, if it did more than once.
    first_s: int | None = None
    times: int = 1
    message: str = ""


class Detail(PageRecord):
    """What is asked for when a gang is opened; its key is the gang's id."""

    members: list[PageMember] = []
    domains: list[PageDomain] = []
    #: Oldest first.
    events: list[PageEvent] = []
    #: Who told the events: "the leader", "Events" or "this page"; since when they are complete.
    events_from: str = ""
    events_since_s: int | None = None
    #: Sentences, "" if there is nothing to say: what happens next, who holds what it lacks, why its
    #: controller creates no pods.
    next: str = ""
    holders: str = ""
    not_created: str = ""
    #: Where the facts come from, and why not from the gangs API ("" if they do).
    source: str = ""
    instead: str = ""


class Bar(PageRecord):
    """A stretch of time of a gang or pod. Without an end it lasts until the moment that is shown,
    or, promised and expected, for an unknown time.
    """

    kind: BarKind
    #: Null where it begins at the moment that is shown.
    from_s: int | None = None
    to_s: int | None = None
    #: It began later than it was promised.
    late: bool = False
    nodes: list[str] = []


class Total(PageRecord):
    """The sum of one resource over all nodes that the user may list."""

    resource: str
    total: int
    free: int
    #: The most that is free on one node, the number of nodes that have the resource.
    most_free: int = 0
    nodes: int = 0
    #: Units on nodes that take no pods, that nobody uses, by the word for that.
    closed: dict[str, int] = {}


class Unknown(PageRecord):
    """Something that the page cannot show, and why."""

    #: A view, or a part of one: map, queue, order, gang, history, reservations, what-if, health.
    what: str
    #: The reason as a sentence, which names the missing right if it is one.
    sentence: str
    #: A right of the user is missing.
    is_right: bool = False


class PageFinding(PageRecord):
    """A finding of `kubectl gangsched doctor`, and what to do about it."""

    check: str
    sentence: str
    todo: str = ""


class Promise(PageRecord):
    """A start that was promised, and the one that came; null while it has not."""

    gang: str
    promised_s: int
    started_s: int | None = None


class Health(PageRecord):
    """What keeps gangs from being scheduled. Broken gangs and closed nodes are in their tables."""

    findings: list[PageFinding] = []
    #: Checks that could not be made, with reasons.
    not_checked: dict[str, str] = {}
    #: Facts by title, such as the versions and the leader.
    facts: dict[str, str] = {}
    #: The promises that are known: those of this page, or of a simulation.
    promises: list[Promise] = []


Place: TypeAlias = tuple[str, int]
"""A gang of the queue: its id, and how many positions it is behind the one before it. The sum up to
it is its position: 0 means together with the one before.
"""


class Moment(PageRecord):
    """Everything, at one time."""

    at_s: float
    #: The sentence about the whole cluster, and what is to be added to it.
    sentence: str = ""
    remark: str = ""
    #: The node labels of the levels, the largest first.
    levels: list[str] = []
    totals: list[Total] = []
    nodes: dict[str, PageNode] = {}
    gangs: dict[str, PageGang] = {}
    #: The gangs that wait, in order, and whose order it is; by age there are no positions.
    queue: list[Place] = []
    order: Order = "scheduler"
    bars: dict[str, list[Bar]] = {}
    details: dict[str, Detail] = {}
    health: Health = msgspec.field(default_factory=Health)
    unknown: list[Unknown] = []


class QueuePart(PageRecord):
    """A stretch of the queue that is replaced."""

    at: int = 0
    dropped: int = 0
    joined: list[Place] = []


class QueueChange(PageRecord):
    """How the queue changed: those that `left` are taken out, and of the rest, as it is then, the
    `dropped` entries from the place `at` on of each part are replaced by its `joined`.
    """

    left: list[str] = []
    #: In order of their places.
    parts: list[QueuePart] = []


class Change(PageRecord):
    """What is different at a later moment. A table has the rows that differ, null for those that
    are gone; every other field is null if it is unchanged.
    """

    at_s: float
    sentence: str | None = None
    remark: str | None = None
    levels: list[str] | None = None
    totals: list[Total] | None = None
    nodes: dict[str, PageNode | None] = {}
    gangs: dict[str, PageGang | None] = {}
    queue: QueueChange | None = None
    order: Order | None = None
    bars: dict[str, list[Bar] | None] = {}
    details: dict[str, Detail | None] = {}
    health: Health | None = None
    unknown: list[Unknown] | None = None


class Document(PageRecord, kw_only=True):
    """The whole document: the first moment, and the changes to each later one, in order."""

    format: int = FORMAT
    source: Source
    clock: Clock = "wall"
    #: The kubeconfig's context, or the name of the file.
    title: str = ""
    #: Whose rights it was read with; "" in files about nobody's.
    user: str = ""
    #: Version of gangsched that made it.
    made_by: str = ""
    #: Namespace of the user's own gangs, for the filter "mine".
    namespace: str = ""
    moment: Moment
    changes: list[Change] = []
