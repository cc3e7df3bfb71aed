"""PlacementReview: whether these pods would start now, by the same `plan` on the current snapshot.

Invariant: the state is unchanged, and nothing is written. The answer is for this moment and does
not predict other gangs. Everything but `wanted` runs in a separate process (`processes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import structs

from gangsched.core.cycle import Limits
from gangsched.core.reserve import Ledger
from gangsched.core.search.domains import best_domains
from gangsched.model.devices import DeviceClass
from gangsched.model.gang import Group, Placement, namespace_of
from gangsched.model.gpu_policy import PRODUCT_LABEL, GpuPolicy
from gangsched.model.objects import Node, Pod, Taint
from gangsched.model.plan import Verdict
from gangsched.model.preemption import NotHelpful, Obstacle, Preemption
from gangsched.model.snapshot import Snapshot
from gangsched.model.text import counted, named
from gangsched.sentences import say
from gangsched.state.glance import glance_cache, glance_input, glance_ledger
from gangsched.state.hypothetical import (
    Hypothetical,
    Wanted,
    WantedPart,
    existing,
    hypothetical,
    with_served,
)
from gangsched.state.members import Member
from gangsched.state.scheduling import SchedulingState
from gangsched.turn import plan_of
from gangsched.visibility.ports import Calls, Clocks, Json
from gangsched.visibility.reviews.parts import parts_of
from gangsched.visibility.reviews.request import (
    KIND,
    GangSettings,
    PodSet,
    Review,
    ReviewPart,
    mode_of,
)
from gangsched.visibility.reviews.rights import Priorities
from gangsched.visibility.statuses import RequestRefused, invalid

UNNAMED = "placement-review"
MOST_PLANS = 40
"""Plans for one question, each as long as one of the loop; about 2 s of a process of its own."""


class MakePod(Protocol):
    """Makes a pod of a template (`kube.read.templates`)."""

    def __call__(
        self,
        template: Mapping[str, Any],
        *,
        namespace: str,
        name: str,
        created_s: int,
        priority: int,
    ) -> Pod:
        """Raises ValueError with what is wrong."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A plan of one group: its verdict, and its snapshot."""

    group: Group
    verdict: Verdict
    snapshot: Snapshot

    @property
    def placements(self) -> Sequence[Placement]:
        """Nodes of the pods, whether they start now or after a preemption; empty if the group does
        not start.
        """
        made = self.verdict.preemption
        return self.verdict.binds or (made.placements if isinstance(made, Preemption) else ())


class Reviewer:
    """Makes the parts of an answer; `answering` assembles them."""

    def __init__(
        self,
        state: SchedulingState,
        calls: Calls,
        clocks: Clocks,
        make_pod: MakePod,
        limits: Limits,
    ) -> None:
        self._state = state
        self._calls = calls
        self._clocks = clocks
        self._make_pod = make_pod
        self._limits = limits

        #: The administrator's settings of accelerators.
        self.policy = state.registry.policy

    async def wanted(self, namespace: str, review: Review, *, is_master: bool = False) -> Wanted:
        """The gang that the review is about. Raises RequestRefused (403, 422, 503)."""
        if review.spec.gang.existing:
            return self._existing(namespace, review.spec.gang.existing)

        priorities = await Priorities.read(self._calls, namespace, is_master=is_master)
        pods: list[Pod] = []

        for number, each in enumerate(review.spec.pod_sets):
            pods += self._pods(
                namespace,
                each,
                number,
                _priority(priorities, review.spec.gang, each, number),
            )

        # each set has a member 0: slices are made in the order of members
        if len(review.spec.pod_sets) > 1:
            pods = [msgspec.structs.replace(pod, index=-1) for pod in pods]

        gang_id = f"{namespace}/{review.spec.gang.name or UNNAMED}"
        known = self._state.registry.gangs

        ending = ""
        # A name of an existing gang would make the pods members of it.
        while gang_id + ending in known or any(
            f"{namespace}/{review_part.name}{ending}" in known for review_part in review.spec.parts
        ):
            ending += "-review"

        return Wanted(
            gang_id + ending,
            tuple(pods),
            review.spec.gang.min,
            mode_of(review.spec.gang),
            tuple(
                _part(review_part, review.spec.pod_sets, pods, ending)
                for review_part in review.spec.parts
            ),
        )

    def hypothetical(self, wanted: Wanted) -> Hypothetical:
        """The group that the gang would form."""
        if wanted.exists:
            return self._found(wanted.id)

        defaults = self._state.registry.defaults
        wanted = with_served(wanted, self._state.cluster)
        return hypothetical(wanted, defaults, self.policy, created_s=int(self._clocks.wall_s()))

    def _existing(self, namespace: str, name: str) -> Wanted:
        """The existing gang that a review is about. Raises RequestRefused (404, 422)."""
        gang_id = f"{namespace}/{name}"
        self._found(gang_id)
        return Wanted(gang_id, (), exists=True)

    def _found(self, gang_id: str) -> Hypothetical:
        record = self._state.registry.gangs.get(gang_id)
        if record is None or not record.ours:
            raise RequestRefused(404, f'gangs "{gang_id.partition("/")[2]}" not found')

        found = existing(gang_id, self._state.registry, self._clocks.now_s())
        if found is None:
            raise invalid(KIND, "", [("spec.gang.existing", "no pod of this gang waits")])

        return found

    def members(self) -> Iterable[Member]:
        """All pods that the scheduler knows."""
        return self._state.members.all()

    def attempt(self, group: Group, change: Callable[[Snapshot], Snapshot] | None = None) -> Tried:
        """Plan a hypothetical group, on the current snapshot or a changed one.

        If the group takes more work than one plan may do, it is planned again, as in the loop.
        Raises RequestRefused (503) if one plan does not reach the group because of the groups
        before it, or if `MOST_PLANS` plans do not decide it.
        """
        now_s = self._clocks.now_s()
        wall_s = self._clocks.wall_s()
        given = glance_input(self._state, group, now_s, wall_s)
        snapshot = change(given.snapshot) if change is not None else given.snapshot
        asked = structs.replace(given, snapshot=snapshot)
        cache = glance_cache(self._state)

        # Each plan is bounded, so a large group takes several, as in the loop.
        for _ in range(MOST_PLANS):
            made = plan_of(asked, now_s, limits=self._limits, policy=self.policy, cache=cache)
            verdicts = [verdict for verdict in made.verdicts if verdict.group == group.id]
            if verdicts and (later := _later(verdicts[0])) is None:
                return Tried(group, verdicts[0], snapshot)

            if verdicts and later is not None and asked.preempting is not None:
                known = {**asked.preempting.known, group.id: later}
                asked = structs.replace(
                    asked, preempting=structs.replace(asked.preempting, known=known)
                )
                continue

            if made.unfinished is None or made.unfinished.group != group.id:
                raise RequestRefused(
                    503,
                    f"{len(made.verdicts)} groups are looked at before it; ask again",
                    retry_after_s=1,
                )

            asked = structs.replace(asked, unfinished=made.unfinished)

        told = f"no answer within {MOST_PLANS} plans; ask about fewer pods, or more similar ones"
        raise RequestRefused(503, told, retry_after_s=60)

    def status(
        self,
        tried: Tried,
        about: Hypothetical,
        review: Review,
        *,
        sees_nodes: bool,
    ) -> Json:
        """The answer, without suggestions."""
        told = tried.verdict.of_gang(about.gang or tried.group.id)
        placements = tried.placements
        found: Json = {
            "fits": bool(placements),
            "reason": told.reason.value,
            "message": _shown(tried, say(told).text, sees_nodes=sees_nodes),
            "nodes": self._kinds(tried, placements),
            "preempts": _preempts(tried.verdict, namespace_of(tried.group.id)),
            "problems": list(about.problems),
        }

        if (
            sees_nodes
            and not placements
            and (domains := self._domains(tried.group, tried.snapshot))
        ):
            found["domains"] = domains

        where = {placement.pod.uid: placement.node for placement in placements}
        snapshot = tried.snapshot if sees_nodes else None
        if parts := parts_of(
            tried.group,
            tried.verdict,
            where,
            snapshot,
            partial(_shown, tried, sees_nodes=sees_nodes),
        ):
            found["parts"] = parts

        if sees_nodes and placements:
            found["assignments"] = _assignments(placements, review)

        return found

    def domains(self, gang_id: str) -> list[Json]:
        """The best domains for a waiting gang, as in the answer to a review; empty if it requires
        no level or does not exist.
        """
        registry = self._state.registry
        group_id = registry.group_of.get(gang_id)
        if group_id is None:
            return []

        return self._domains(registry.group(group_id, self._clocks.now_s()), self._state.snapshot())

    def _ledger(self, snapshot: Snapshot) -> Ledger:
        return glance_ledger(self._state, snapshot, self._clocks.now_s())

    def _domains(self, group: Group, snapshot: Snapshot) -> list[Json]:
        """The best domains of the levels that a group requires, and what each lacks; none if it
        requires none.
        """
        domains: list[Json] = []
        for domain_room in best_domains(group, self._ledger(snapshot)):
            domains.append(
                {
                    "domain": domain_room.name,
                    "holds": domain_room.holds,
                    "lacks": domain_room.needed - domain_room.holds,
                    "refutedBy": domain_room.refuted,
                }
            )

        return domains

    def advice(self, wanted: Wanted, about: Hypothetical) -> list[str]:
        """Changes that the user should make, whether the gang fits or not."""
        names = sorted({pod.scheduler_name for pod in wanted.pods} - self._state.names)
        ours = " or ".join(sorted(self._state.names))
        told = [f'schedulerName "{name}" is not served here: set {ours}' for name in names]

        asked = sorted(
            {
                extended_resource.name
                for pod in wanted.pods
                for extended_resource in pod.shape.extended
            }
        )
        if (
            asked
            and DeviceClass in self._state.cluster.storage_cache.awaited
            and self._state.cluster.served.is_on
        ):
            told.append(
                f"devices that serve {named(asked)} are not counted: DeviceClasses are read once a"
                " pod requests an extended resource"
            )

        if about.others:
            told.append(
                f"it starts together with {', '.join(about.others)}, which this review does not"
                " look at"
            )

        return told

    def _kinds(self, tried: Tried, placements: Sequence[Placement]) -> list[Json]:
        table = tried.snapshot.table
        nodes = {placement.node for placement in placements}
        kinds = Counter(kind_of(table.nodes[table.index[name]], self.policy) for name in nodes)

        return [{"kind": kind, "count": count} for kind, count in sorted(kinds.items())]

    def _pods(
        self,
        namespace: str,
        of: PodSet,
        number: int,
        priority: tuple[int, bool],
    ) -> list[Pod]:
        try:
            pod = self._make_pod(
                of.template,
                namespace=namespace,
                name=f"{_set_name(of, number)}-0",
                created_s=int(self._clocks.wall_s()),
                priority=priority[0],
            )
        except ValueError as error:
            raise invalid(KIND, "", [(f"spec.podSets[{number}].template", str(error))]) from None

        # The native group is that of other pods; the review decides what the gang is.
        changes: Json = {"native_group": "", "never_preempts": pod.never_preempts or priority[1]}
        pods: list[Pod] = []

        for index in range(of.count):
            pods.append(
                msgspec.structs.replace(
                    pod,
                    name=f"{_set_name(of, number)}-{index}",
                    uid=f"{number}:{index}",
                    index=index,
                    **changes,
                )
            )

        return pods


def _assignments(placements: Sequence[Placement], review: Review) -> list[Json]:
    """How many pods of each set are placed on each node; a pod that exists is a set of its own."""
    sets = [_set_name(pod_set, number) for number, pod_set in enumerate(review.spec.pod_sets)]
    counts: Counter[tuple[int, str, str]] = Counter()

    for placement in placements:
        if sets:
            number = _number(placement.pod)
            counts[number, sets[number], placement.node] += 1
        else:
            counts[0, placement.pod.name, placement.node] += 1

    return [
        {"podSet": name, "node": node, "count": count}
        for (_, name, node), count in sorted(counts.items())
    ]


def _later(verdict: Verdict) -> NotHelpful | None:
    """Where the next plan goes on looking for what may be preempted (V25); None where this one
    found it out.
    """
    found = verdict.preemption
    if isinstance(found, NotHelpful) and found.why is Obstacle.LATER:
        return found

    return None


def _priority(
    priorities: Priorities,
    gang: GangSettings,
    of: PodSet,
    number: int,
) -> tuple[int, bool]:
    """The priority of a template's pods, and whether their class never preempts. Raises
    RequestRefused (403, 422).
    """
    if gang.priority is not None:
        return priorities.of_number(gang.priority), False

    spec = of.template.get("spec")
    name = (
        gang.priority_class_name
        or (spec.get("priorityClassName") if isinstance(spec, dict) else None)
        or ""
    )
    return priorities.of_class(str(name), f"spec.podSets[{number}].template.spec.priorityClassName")


def kind_of(node: Node, policy: GpuPolicy) -> str:
    """Description of a node: its accelerators and their product."""
    offered = []
    for name, amount in node.allocatable:
        if amount and policy.is_accelerator(name):
            offered.append(f"{amount}× {name}")

    product = node.labels.get(PRODUCT_LABEL, "")
    if offered:
        return " ".join([", ".join(offered), *([product] if product else [])])

    return "no accelerators"


def with_pods(group: Group, change: Callable[[Pod], Pod]) -> Group:
    """The same group with `change` applied to its pods."""
    (gang,) = group.gangs
    return structs.replace(
        group, gangs=(structs.replace(gang, pending=tuple(map(change, gang.pending))),)
    )


def _preempts(verdict: Verdict, namespace: str) -> list[Json]:
    """The victims by gang or pod; for other namespaces only their number."""
    made = verdict.preemption
    if not isinstance(made, Preemption):
        return []

    counts: Counter[tuple[str, str, str]] = Counter()
    for victim in made.victims:
        is_own = victim.namespace == namespace
        name = (victim.gang.partition("/")[2] or victim.name) if is_own else ""
        counts["gang" if victim.gang else "pod", namespace if is_own else "", name] += 1

    return [
        {"kind": kind, **({"namespace": space, "name": name} if name else {}), "count": count}
        for (kind, space, name), count in sorted(counts.items())
    ]


def _part(part: ReviewPart, sets: Sequence[PodSet], pods: Sequence[Pod], ending: str) -> WantedPart:
    """A part with the pods of its sets; with an `ending` its name is that of no existing gang."""
    return WantedPart(
        name=part.name + ending,
        parent=part.parent and part.parent + ending,
        pods=tuple(pod for pod in pods if sets[_number(pod)].part == part.name),
        min_member=part.min,
        min_children=part.min_children,
        topology=part.topology,
    )


def _shown(tried: Tried, text: str, *, sees_nodes: bool) -> str:
    return text if sees_nodes else _without_nodes(tried, text)


def _without_nodes(tried: Tried, text: str) -> str:
    """A sentence for who may not list nodes: it names none that is to be preempted on, and no value
    of a taint.
    """
    made = tried.verdict.preemption
    if isinstance(made, Preemption):
        going = len(made.victims) + len(made.awaited)
        return (
            f"it starts once {counted(going, 'pod')} on its nodes {'has' if going == 1 else 'have'}"
            " ended"
        )

    table = tried.snapshot.table
    for taint in {taint for taints in table.tainted for taint in taints if taint.value}:
        # Values of taints may name tenants; keys are needed to understand the refusal.
        text = text.replace(str(taint), str(without_value(taint)))

    return text


def without_value(taint: Taint) -> Taint:
    """The same key and effect, without the value."""
    return msgspec.structs.replace(taint, value="")


def _set_name(of: PodSet, number: int) -> str:
    return of.name or f"set-{number}"


def _number(pod: Pod) -> int:
    return int(pod.uid.partition(":")[0])
