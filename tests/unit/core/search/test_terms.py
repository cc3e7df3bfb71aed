"""Terms of pods that are topology: affinity to each other and exclusive domains are searched
exactly (L7).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from gangsched.core.cycle import plan
from gangsched.core.reserve import Ledger
from gangsched.core.search.terms import terms_of
from gangsched.model.gang import Gang
from gangsched.model.inter_pod import HostPort, InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import Node, Pod
from gangsched.model.plan import Plan, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Snapshot
from gangsched.sentences import say
from tests import builders
from tests.running_cluster import RunningCluster, nominated, victims
from tests.sizes import of_size

SEED = 65
RACK, JOB = "topology.kubernetes.io/rack", "jobset.sigs.k8s.io/job-key"


@cache
def exclusive(job: str, key: str = RACK, *, alone: bool = True) -> InterPodConstraints:
    """What JobSet's webhook writes into the first pod of a job: near its own job, and with `alone`
    near no other.
    """
    own = PodTerm(key, (Requirement(JOB, "In", (job,)),))
    others = PodTerm(key, (Requirement(JOB, "Exists"), Requirement(JOB, "NotIn", (job,))))
    return InterPodConstraints(affinity=(own,), anti_affinity=(others,) if alone else ())


def pods_of(job: str, *gpus: int, cpus: int = 0, alone: bool = True) -> list[Pod]:
    """A pod of so many GPUs each of one job, which keeps a rack for itself with `alone`."""
    terms = exclusive(job, alone=alone)
    shapes = [builders.shape(each, cpu_milli=cpus * 1000, inter_pod=terms) for each in gpus]
    return [builders.pod(f"{job}-{n}", of=of, labels={JOB: job}) for n, of in enumerate(shapes)]


def rack(name: str, *sizes: int, cpus: int = 64) -> list[Node]:
    """One node of each of these numbers of GPUs."""
    return [
        builders.node(f"{name}-{n}", gpus, cpu_milli=cpus * 1000, labels={RACK: name})
        for n, gpus in enumerate(sizes)
    ]


def decided(snapshot: Snapshot, gang: Gang, *, most_plans: int = 1) -> tuple[Verdict, int]:
    """The verdict on the gang and the number of plans until then."""
    unfinished, group = None, builders.group(gang)
    for number in range(1, most_plans + 1):
        planned: Plan = plan(snapshot, [group], now_s=0.0, unfinished=unfinished)
        if planned.verdicts:
            return planned.verdicts[0], number
        unfinished = planned.unfinished
    raise AssertionError(f"no verdict in {most_plans} plans")


def racks_of(verdict: Verdict) -> dict[str, set[str]]:
    """The racks that each job uses."""
    found: dict[str, set[str]] = {}
    for placement in verdict.binds:
        found.setdefault(placement.pod.labels.get(JOB, ""), set()).add(
            placement.node.rpartition("-")[0]
        )
    return found


def test_members_that_must_be_together_are_tried_in_every_rack() -> None:
    """Three pods of 5, 4 and 3 GPUs: many racks have the sums, one takes them."""
    nodes = [each for n in range(40) for each in rack(f"r{n:02}", 6, 6)] + rack("x", 8, 4)
    verdict, _ = decided(
        builders.snapshot(nodes), builders.gang("ns/g", pods_of("j", 5, 4, 3, alone=False))
    )
    assert racks_of(verdict) == {"j": {"x"}}
    verdict, _ = decided(
        builders.snapshot(nodes[:-2]), builders.gang("ns/g", pods_of("j", 5, 4, 3, alone=False))
    )
    assert verdict.reason is Reason.UNSCHEDULABLE
    assert (
        "40 of 40 domains of topology.kubernetes.io/rack have room, but too scattered"
        in say(verdict.told).now
    )


def test_jobs_that_exclude_each_other_get_the_racks_that_take_all_of_them() -> None:
    """Of three racks one takes b and one takes c alone: a, which fits everywhere and is first, gets
    the third.
    """
    nodes = rack("p", 8, cpus=64) + rack("q", 4, cpus=64) + rack("r", 8, cpus=16)
    jobs = [*pods_of("a", 4, cpus=8), *pods_of("b", 4, cpus=32), *pods_of("c", 8, cpus=8)]
    for order in (jobs, jobs[::-1]):
        verdict, _ = decided(builders.snapshot(nodes), builders.gang("ns/g", order))
        used = racks_of(verdict)
        assert (
            (used["b"], used["c"]) == ({"q"}, {"p"})
            or (used["b"], used["c"]) == ({"p"}, {"r"})
            or used == {"a": {"p"}, "b": {"q"}, "c": {"r"}}
        )
        assert len(set().union(*used.values())) == 3


def test_racks_of_other_jobs_are_closed_and_one_of_the_own_job_stays() -> None:
    """A job that runs keeps others out of its rack, whoever of the two states it."""
    there = builders.running(pods_of("old", 1)[0], "a-0")
    nodes = rack("a", 8, 8) + rack("b", 6, 6) + rack("c", 8, 4)
    snapshot = builders.snapshot(nodes, [(there, "a-0")])
    verdict, _ = decided(snapshot, builders.gang("ns/g", pods_of("new", 5, 4, 3)))
    assert racks_of(verdict) == {"new": {"c"}}
    labelled = [
        builders.pod(f"p{n}", gpus=gpus, labels={JOB: "new"}) for n, gpus in enumerate((7, 7))
    ]
    verdict, _ = decided(snapshot, builders.gang("ns/h", labelled))
    assert verdict.reason is Reason.UNSCHEDULABLE
    verdict, _ = decided(snapshot, builders.gang("ns/i", pods_of("old", 5, 8, alone=False)))
    assert racks_of(verdict) == {"old": {"a"}}


@pytest.mark.parametrize(
    ("racks", "jobs", "sizes"), [(3, 4, (8, 4)), (15, 16, (8, 4)), (31, 32, (8,)), (499, 32, (8,))]
)
def test_more_jobs_than_racks_are_refused_within_few_plans(
    racks: int, jobs: int, sizes: tuple[int, ...]
) -> None:
    """Counting racks refutes it, however alike they are; with a rack more they all start."""
    nodes = [each for n in range(racks) for each in rack(f"r{n:03}", 8, 8)]
    members = [pod for n in range(jobs) for pod in pods_of(f"j{n:03}", *sizes)]
    for more in (0, 1):
        snapshot = builders.snapshot([*nodes, *(rack("x", 8, 8) if more else ())])
        verdict, _ = decided(snapshot, builders.gang("ns/g", members), most_plans=5)
        assert len(verdict.binds) == (len(members) if more or racks > jobs else 0)
        assert len(racks_of(verdict)) == len({*map(frozenset, racks_of(verdict).values())})
        assert verdict.reason is (Reason.SCHEDULED if verdict.binds else Reason.UNSCHEDULABLE)
        assert "steps" not in say(verdict.told).text


def test_what_is_more_than_topology_is_left_to_rounds() -> None:
    """One pod a node, host ports, affinity of some to others, and members of one shape that terms
    tell apart.
    """
    ledger = builders.ledger(rack("a", 8, 8))
    each_apart = InterPodConstraints(anti_affinity=(PodTerm("kubernetes.io/hostname", ()),))
    port = InterPodConstraints(ports=(HostPort("TCP", 80),))
    near = InterPodConstraints(affinity=(PodTerm(RACK, (Requirement("app", "In", ("server",)),)),))
    for constraints in (each_apart, port):
        alike = builders.pods("p", builders.shape(1, inter_pod=constraints), 2)
        assert terms_of([builders.gang("ns/g", alike)], ledger) is None
    server = builders.pod("server", labels={"app": "server"})
    client = builders.pod("client", of=builders.shape(1, inter_pod=near))
    assert terms_of([builders.gang("ns/g", [server, client])], ledger) is None
    found = terms_of(
        [builders.gang("ns/g", [*pods_of("a", 1, 2), *pods_of("b", 1), builders.pod("driver")])],
        ledger,
    )
    assert found is not None
    assert [(len(part.pods), part.alone) for part in found.parts] == [(2, True), (1, True)]
    assert [pod.name for pod in found.loose[0]] == ["driver"]


def test_hundreds_of_members_that_must_be_together_are_placed_in_one_plan() -> None:
    """Affinity to each other lets members be placed at once; that to members that are apart, one by
    one.
    """
    nodes = [each for n in range(3) for each in rack(f"r{n}", *[8] * 60)]
    for members in (pods_of("j", *[4] * 100, alone=False), pods_of("j", *[4] * 100)):
        verdict, _ = decided(builders.snapshot(nodes), builders.gang("ns/g", members), most_plans=1)
        assert len(racks_of(verdict)["j"]) == 1
        assert len(verdict.binds) == 100
    apart = InterPodConstraints(
        anti_affinity=(PodTerm("kubernetes.io/hostname", (Requirement("app", "Exists"),)),)
    )
    members = [
        builders.pod(f"p{n}", of=builders.shape(4, inter_pod=apart), labels={"app": "a"})
        for n in range(9)
    ]
    verdict, _ = decided(builders.snapshot(nodes), builders.gang("ns/g", members))
    assert len({placement.node for placement in verdict.binds}) == 9


def test_members_that_must_be_together_preempt_in_one_rack() -> None:
    """Racks full of low pods: the members clear one that can hold them all, and
    nothing elsewhere.
    """
    nodes = [each for n in range(6) for each in rack(f"r{n}", 6, 5, 5)] + rack("x", 8, 8, 2)
    cluster = RunningCluster(nodes)
    for each in nodes:
        cluster.run(f"low-{each.name}", each.name, gpus=dict(each.allocatable)["nvidia.com/gpu"])
    terms = exclusive("j", alone=False)
    members = [
        builders.pod(
            f"j-{n}", of=builders.shape(gpus, inter_pod=terms), labels={JOB: "j"}, priority=9
        )
        for n, gpus in enumerate((4, 4, 3, 3, 2))
    ]
    verdict = cluster.verdicts(builders.group(builders.gang("ns/g", members), priority=9))["ns/g"]
    assert {name.removeprefix("low-").rpartition("-")[0] for name in victims(verdict)} == {"x"}
    assert {node.rpartition("-")[0] for node in nominated(verdict).values()} == {"x"}


@dataclass(frozen=True)
class Case:
    """A small cluster with running pods, and members of which so many are needed."""

    nodes: tuple[Node, ...]
    there: tuple[tuple[Pod, str], ...]
    members: tuple[Pod, ...]
    needed: int


def cases(rng: random.Random) -> Iterator[Case]:
    """Random cases without end, tight ones."""
    while True:
        racks = rng.randint(2, 4)
        nodes = [
            each
            for n in range(racks)
            for each in rack(f"r{n}", *rng.choices((3, 4, 6, 8), k=rng.randint(1, 2)))
        ]
        if rng.random() < 0.2:
            nodes.append(builders.node("bare-0", 8))
        members, alone = list[Pod](), rng.random() < 0.7
        for number in range(rng.randint(1, 3)):
            sizes = rng.choices((1, 2, 3, 4, 5, 8), k=rng.randint(1, 3))
            members += pods_of(f"j{number}", *sizes, alone=alone)
        members += [
            builders.pod(f"loose-{n}", gpus=rng.randint(1, 4))
            for n in range(rng.choice((0, 0, 1, 2)))
        ]
        there = []
        for number in range(rng.choice((0, 0, 1, 2))):
            node = rng.choice(nodes)
            of = pods_of(f"old{number}", 1, alone=rng.random() < 0.6)[0]
            there.append((builders.running(of, node.name), node.name))
        if len(members) <= 7:
            rng.shuffle(members)
            # of several parts all must be needed
            is_one = len({pod.labels.get(JOB) for pod in members}) == 1
            needed = rng.randint(1, len(members)) if is_one and rng.random() < 0.5 else len(members)
            yield Case(tuple(nodes), tuple(there), tuple(members), needed)


def fits(case: Case) -> bool:
    """Whether any choice of nodes keeps to the room and to all terms; every one is tried."""
    free = {node.name: dict(node.allocatable)["nvidia.com/gpu"] for node in case.nodes}
    rack_of = {node.name: node.labels.get(RACK, "") for node in case.nodes}
    repels, used = set[str](), set[str]()
    for pod, node in case.there:
        free[node] -= 1
        (repels if pod.shape.constraints.anti_affinity else used).add(rack_of[node])

    def job(pod: Pod) -> str:
        return pod.labels.get(JOB, "")

    alone = {job(pod) for pod in case.members if pod.shape.constraints.anti_affinity}
    members = sorted(case.members, key=job)

    def placed(index: int, at: dict[str, str], spare: int) -> bool:
        if index == len(members):
            return True
        pod, own = members[index], job(members[index])
        gpus = dict(pod.shape.requests)["nvidia.com/gpu"]
        for node, room in free.items():
            where = rack_of[node]
            if room < gpus:
                continue
            if own:
                others = [each for each, there in at.items() if there == where and each != own]
                if not where or at.get(own, where) != where or where in repels:
                    continue
                if own in alone and (others or where in used):
                    continue
            free[node] -= gpus
            fits = placed(index + 1, {**at, own: where} if own else at, spare)
            free[node] += gpus
            if fits:
                return True
        return bool(spare) and placed(index + 1, at, spare - 1)

    return min(free.values()) >= 0 and placed(0, {}, len(members) - case.needed)


def sound(case: Case, binds: Sequence[tuple[Pod, str]]) -> bool:
    """Whether enough members have a node, as `fits` asks."""
    if len(binds) < case.needed:
        return False
    pinned = [
        (pod.labels.get(JOB, ""), dict(pod.shape.requests)["nvidia.com/gpu"], node, pod)
        for pod, node in binds
    ]
    free = {node.name: dict(node.allocatable)["nvidia.com/gpu"] for node in case.nodes}
    rack_of = {node.name: node.labels.get(RACK, "") for node in case.nodes}
    for _, node in case.there:
        free[node] -= 1
    for _, gpus, node, _ in pinned:
        free[node] -= gpus
    racks: dict[str, set[str]] = {}
    for job, _, node, _ in pinned:
        if job:
            racks.setdefault(job, set()).add(rack_of[node])
    is_alone = {job: bool(pod.shape.constraints.anti_affinity) for job, _, _, pod in pinned if job}
    there = {
        pod.labels[JOB]: (rack_of[node], bool(pod.shape.constraints.anti_affinity))
        for pod, node in case.there
    }
    for job, own in racks.items():
        if len(own) != 1 or own == {""}:
            return False
        for other, others in racks.items():
            if other != job and own == others and (is_alone[job] or is_alone[other]):
                return False
        if any({where} == own and (is_alone[job] or repels) for where, repels in there.values()):
            return False
    return min(free.values()) >= 0


@pytest.mark.long
def test_whatever_fits_by_terms_is_found() -> None:
    """Whenever enumeration places enough members, so does plan; and never else."""
    print(f"seed {SEED}")
    feasible, number = 0, of_size(120, 400)
    for case in itertools.islice(cases(random.Random(SEED)), number):
        gang = builders.gang("ns/g", case.members, min_member=case.needed)
        assert terms_of([gang], Ledger(builders.snapshot(case.nodes, case.there))) is not None
        verdict, _ = decided(builders.snapshot(case.nodes, case.there), gang, most_plans=5)
        is_possible = fits(case)
        feasible += is_possible
        assert (verdict.reason is Reason.SCHEDULED) == is_possible, case
        assert not is_possible or sound(case, [(each.pod, each.node) for each in verdict.binds]), (
            case
        )
    assert number // 4 < feasible < number * 7 // 8
