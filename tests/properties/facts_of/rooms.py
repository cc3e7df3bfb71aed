"""Facts about room: selectors, taints, cordons, racks and host ports (E1).

What the plan says of a gang is compared with all choices of nodes for its pods, on the cluster as
it is and on the empty one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from gangsched.core.cycle import plan
from gangsched.model.gang import Refusal
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.inter_pod import HostPort, InterPodConstraints
from gangsched.model.objects import Node, Pod, Shape, Taint
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import DomainsShort, MemberFails, NodeCounts, RoomShort, Shortage
from gangsched.sentences import say
from tests.builders import gang, group, node, pod, snapshot, verdict_on
from tests.properties.facts_of.told import Told

SITUATION = "rooms"
RACK = "example.com/rack"
GPU = "nvidia.com/gpu"
CPU = "cpu"
PLENTY = 1_000_000
TAINTS = (Taint(key="team", value="b", effect="NoSchedule"),)


@dataclass(frozen=True)
class Case:
    """A cluster, what others use of it, and the pods of one gang."""

    nodes: tuple[Node, ...]
    used: tuple[tuple[int, int], ...]
    pods: tuple[Pod, ...]
    in_rack: bool
    has_port: bool

    def free(self, *, empty: bool) -> list[tuple[int, int]]:
        """By node: GPUs and thousandths of a core that are free."""
        found = []
        for each, (gpus, cpu) in zip(self.nodes, self.used, strict=True):
            offered = dict(each.allocatable)
            taken = (0, 0) if empty else (gpus, cpu)
            found.append((offered.get(GPU, 0) - taken[0], offered[CPU] - taken[1]))

        return found

    def eligible(self, shape: Shape) -> list[bool]:
        """By node: whether taints, cordon and selector let the shape in."""
        return [
            not each.taints
            and not each.unschedulable
            and all(each.labels.get(key) == value for key, value in shape.node_selector)
            for each in self.nodes
        ]

    def most(self, *, empty: bool, rack: str = "", of: tuple[str, ...] = (GPU, CPU)) -> int:
        """The largest number of pods that have a place together, of all choices, if nodes have too
        little of these resources only.
        """
        free = []
        for gpus, cpu in self.free(empty=empty):
            free.append((gpus if GPU in of else PLENTY, cpu if CPU in of else PLENTY))

        places = [self._places(each, rack) for each in self.pods]
        return max(self._number(choice, free) for choice in product(*places))

    def best_rack(self, *, empty: bool) -> int:
        """The largest number in one rack."""
        racks = {each.labels[RACK] for each in self.nodes if RACK in each.labels}
        return max((self.most(empty=empty, rack=rack) for rack in racks), default=0)

    def _places(self, asking: Pod, rack: str) -> list[int]:
        open_nodes = self.eligible(asking.shape)
        found = [-1]
        for number, each in enumerate(self.nodes):
            if open_nodes[number] and (not rack or each.labels.get(RACK) == rack):
                found.append(number)

        return found

    def _number(self, choice: Sequence[int], free: Sequence[tuple[int, int]]) -> int:
        """The number of pods of a choice, -1 if it is not possible."""
        left = [[*each] for each in free]
        ports: set[int] = set()
        for asking, place in zip(self.pods, choice, strict=True):
            if place < 0:
                continue

            requests = dict(asking.shape.requests)
            left[place][0] -= requests.get(GPU, 0)
            left[place][1] -= requests.get(CPU, 0)
            if min(left[place]) < 0 or (self.has_port and place in ports):
                return -1

            ports.add(place)

        return sum(place >= 0 for place in choice)


def case_of(seed: int) -> Case:
    """The case of a seed."""
    rng = Random(seed)
    nodes = []
    used = []

    for number in range(rng.randint(1, 4)):
        labels = {"pool": rng.choice("ab")}
        if rng.random() < 0.9:
            labels[RACK] = rng.choice(("r0", "r1"))

        gpus = rng.randint(0, 4)
        cpu = rng.randint(1, 4) * 1000
        nodes.append(
            node(
                f"n{number}",
                gpus,
                cpu_milli=cpu,
                labels=labels,
                taints=TAINTS if rng.random() < 0.15 else (),
                unschedulable=rng.random() < 0.1,
            )
        )
        used.append((rng.randint(0, gpus), rng.randrange(0, cpu, 1000)))

    has_port = rng.random() < 0.3
    selector = (("pool", "a"),) if rng.random() < 0.3 else ()
    kinds = [
        _shape(rng.randint(0, 3), rng.randint(1, 3) * 1000, selector, has_port=has_port)
        for _ in range(rng.choice((1, 1, 2)))
    ]
    pods = [pod(f"g-{number}", of=rng.choice(kinds)) for number in range(rng.randint(1, 4))]
    return Case(tuple(nodes), tuple(used), tuple(pods), rng.random() < 0.4, has_port)


def _shape(gpus: int, cpu: int, selector: tuple[tuple[str, str], ...], *, has_port: bool) -> Shape:
    requests = [(CPU, cpu)]
    if gpus:
        requests.append((GPU, gpus))

    constraints = InterPodConstraints(ports=(HostPort("TCP", 80),)) if has_port else None
    return Shape(
        requests=(*requests, ("pods", 1)),
        node_selector=selector,
        inter_pod=constraints,
    )


def refusal_of(case: Case) -> Refusal | None:
    """What the plan says of the gang; None if it starts."""
    others = []
    for number, (gpus, cpu) in enumerate(case.used):
        requests = tuple((name, amount) for name, amount in ((CPU, cpu), (GPU, gpus)) if amount)
        others.append((pod(f"other-{number}", of=Shape(requests=requests)), f"n{number}"))

    constraints = PlacementConstraints(topology=(RACK,) if case.in_rack else ())
    of = group(gang("ns/g", case.pods, constraints=constraints))
    verdict = verdict_on(plan(snapshot(case.nodes, others), [of], now_s=0.0), of.id)
    return None if verdict.binds else verdict.told


def told(seed: int) -> Told | None:
    """The case of a seed."""
    case = case_of(seed)
    refusal = refusal_of(case)
    if refusal is None:
        return None

    return Told(refusal, lambda changed: lies(case, changed))


def lies(case: Case, told: Refusal) -> Iterator[str]:
    """What is not true of a refusal."""
    needed = len(case.pods)
    fact = told.fact
    if told.reason is not Reason.UNSCHEDULABLE:
        return

    if isinstance(fact, RoomShort):
        yield from _of_room(case, told, fact)
    elif isinstance(fact, MemberFails):
        yield from _of_member(case, fact)
    else:
        yield f"no check for {type(fact).__name__}"
        return

    if fact.need.pods != needed:
        yield f"{fact.need.pods} pods are needed, not {needed}"

    most = case.best_rack(empty=True) if case.in_rack else case.most(empty=True)
    has_eligible = any(any(case.eligible(each.shape)) for each in case.pods)
    if told.never and has_eligible and most >= needed:
        yield "it is said to start never, and would on the empty cluster"


def _of_room(case: Case, told: Refusal, fact: RoomShort) -> Iterator[str]:
    most = case.most(empty=False)
    if fact.exact and fact.room != most:
        yield f"{fact.room} fit exactly, but the maximum is {most}"
    if fact.room < most:
        yield f"room for at most {fact.room}, but {most} fit"
    if fact.empty_room < min(case.most(empty=True), len(case.pods)):
        yield f"on empty nodes at most {fact.empty_room}"
    if fact.empty_room < fact.need.pods and fact.short.nodes and not fact.limits:
        yield "no resource is named that limits the empty nodes"

    yield from _of_limits(fact.limits, case.most(empty=True, of=fact.limits), fact.empty_room, fact)
    shape = next(each.shape for each in case.pods if each.key == fact.pod)
    yield from _of_nodes(case, shape, fact.nodes)
    yield from _of_shortage(case, shape, fact.short)
    # That no node has all of a request follows from the maximum, which was checked.
    headline = say(told).headline
    is_of_one = "no eligible node has" in headline and "has free all" not in headline
    if is_of_one and not told.never:
        yield from _none_is_left(case, shape, fact)


def _of_limits(
    limits: tuple[str, ...], most: int, number: int, fact: RoomShort | MemberFails
) -> Iterator[str]:
    """By the resources that are named alone no more pods fit on the empty nodes. `most` of them do;
    for pods of several kinds `number` is an upper limit, and all of them must not fit.
    """
    needed = fact.need.pods
    if limits and (most > number if fact.need.requests is not None else most >= needed):
        yield f"by {limits} alone {most} pods fit on the empty nodes, not {number}"


def _is_one_enough(case: Case, rack: str, fact: MemberFails) -> bool:
    """Whether some resource alone proves that not all pods fit into a rack that is empty; for pods
    that are alike there is a name on each node.
    """
    if fact.need.requests is not None:
        return True

    needed = fact.need.pods
    return any(case.most(empty=True, rack=rack, of=(name,)) < needed for name in (GPU, CPU))


def _none_is_left(case: Case, shape: Shape, fact: RoomShort) -> Iterator[str]:
    """After as many pods as fit are placed, no eligible node has the scarce amount."""
    amounts = fact.short.scarcest
    index = 0 if amounts.resource == GPU else 1
    requests = dict(shape.requests)
    for (gpus, cpu), is_open in zip(case.free(empty=False), case.eligible(shape), strict=True):
        if not is_open:
            continue

        fit = min(
            have // requests[name] for name, have in ((GPU, gpus), (CPU, cpu)) if name in requests
        )
        left = (gpus, cpu)[index] - fit * amounts.asked
        if left >= amounts.asked:
            yield f"a node has {left} {amounts.resource} left"


def _of_nodes(case: Case, shape: Shape, nodes: NodeCounts) -> Iterator[str]:
    eligible = sum(case.eligible(shape))
    if nodes.total != len(case.nodes):
        yield f"{nodes.total} nodes"
    if nodes.eligible != eligible:
        yield f"{nodes.eligible} nodes are eligible, not {eligible}"

    # A node that lacks two resources is counted for each, as kube-scheduler does.
    counted = sum(each.nodes for each in nodes.excluded)
    if counted < nodes.total:
        yield f"only {counted} of {nodes.total} nodes have a reason"
    for each in nodes.excluded:
        if each.nodes > nodes.total:
            yield f"{each.nodes} nodes for {each.reason}"


def _of_shortage(case: Case, shape: Shape, short: Shortage) -> Iterator[str]:
    open_nodes = case.eligible(shape)
    if short.nodes != sum(open_nodes):
        yield f"{short.nodes} nodes, not {sum(open_nodes)}"
    if not short.nodes:
        return

    amounts = short.scarcest
    if amounts.resource not in {GPU, CPU}:
        return

    index = 0 if amounts.resource == GPU else 1
    free = [each[index] for each, ok in zip(case.free(empty=False), open_nodes, strict=True) if ok]
    offers = [each[index] for each, ok in zip(case.free(empty=True), open_nodes, strict=True) if ok]
    asked = dict(shape.requests)[amounts.resource]
    truth = {
        "asked": asked,
        "offered": max(offers),
        "offered_in_all": sum(offers),
        "free_on_one": max(free),
        "free_in_all": sum(free),
        "takes": sum(each // asked for each in free),
    }
    for name, value in truth.items():
        if getattr(amounts, name) != value:
            yield f"{name} of {amounts.resource} is {value}, not {getattr(amounts, name)}"


def _of_member(case: Case, fact: MemberFails) -> Iterator[str]:
    shape = next(each.shape for each in case.pods if each.key == fact.tried)
    if fact.domains is not None:
        yield from _of_domains(case, fact, fact.domains)
        return

    most = case.most(empty=False)
    if fact.placed > most or (fact.most and fact.placed != most):
        yield f"{fact.placed} are placed, and the maximum is {most}"

    requests = dict(shape.requests)
    alone = 0
    for (gpus, cpu), is_open in zip(case.free(empty=False), case.eligible(shape), strict=True):
        alone += is_open and gpus >= requests.get(GPU, 0) and cpu >= requests[CPU]

    if fact.alone != alone:
        yield f"{fact.alone} nodes take it alone, not {alone}"
    if fact.apart and not case.has_port:
        yield f"members are apart by {fact.apart}"

    yield from _of_nodes(case, shape, fact.nodes)
    yield from _of_shortage(case, shape, fact.short)


def _of_domains(case: Case, fact: MemberFails, domains: DomainsShort) -> Iterator[str]:
    racks = {each.labels[RACK] for each in case.nodes if RACK in each.labels}
    if domains.number != len(racks):
        yield f"{domains.number} racks, not {len(racks)}"
    if not racks:
        return

    now = case.most(empty=False, rack=domains.best)
    best = case.best_rack(empty=False)
    if domains.takes < best:
        yield f"the best rack takes {best}, not at most {domains.takes}"
    if not domains.at_most and domains.takes < domains.needed and domains.takes != now:
        yield f"{domains.best} takes {now}, not {domains.takes}"

    if domains.when_empty is not None:
        number = domains.when_empty.number
        limits = domains.when_empty.limits
        most = case.most(empty=True, rack=domains.when_empty.name, of=limits)
        yield from _of_limits(limits, most, number, fact)
        if not limits and not case.has_port and _is_one_enough(case, domains.when_empty.name, fact):
            yield "no resource is named that limits a rack"

        empty = case.best_rack(empty=True)
        if number < empty or (not domains.at_most and number != empty):
            yield f"the best empty rack takes {empty}, not {number}"
