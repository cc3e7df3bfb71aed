"""The pretended Eviction API does what the real one does (tests/e2e/test_evictions.py asks that
one).
"""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.model.protocol import (
    CancelPreemption,
    Evict,
    Evicted,
    EvictionDelayed,
    EvictionResult,
    Message,
    NominatedMember,
    PodRef,
    PreemptionAnswer,
    PreemptionPrepared,
    PreparePreemption,
)
from tests.scenarios.objects import Maker
from tests.scenarios.virtual import VirtualCluster

MAKER = Maker("ns")


class Recording(VirtualCluster):
    """A cluster that keeps what is answered."""

    def __init__(self) -> None:
        self.answers: list[Message] = []
        super().__init__(one_by_one=True, settings={"preemption": "off"})

    def needs(self, order: Evict) -> bool:
        """The test orders evictions, and no nomination of the scheduler's."""
        return True

    def tell(self, message: Message) -> None:
        """Keep it."""
        self.answers.append(message)
        assert isinstance(message, PreemptionAnswer)


@pytest.fixture
def cluster() -> Recording:
    """A node, a running pod that takes 20 s to stop, and a pending one without room."""
    made = Recording()
    made.create(list(MAKER.nodes("n", {"gpus": 8})))
    made.create(MAKER.entry({"pod": "runs", "gpus": 8, "grace": 20, "labels": {"app": "a"}}))
    made.create(MAKER.entry({"pod": "waits", "gpus": 8}))
    made.wait(1)
    return made


def ref(cluster: Recording, name: str) -> dict[str, str]:
    """The uid, namespace and name of a pod."""
    return {
        "uid": cluster.view.pods[f"ns/{name}"]["metadata"]["uid"],
        "namespace": "ns",
        "name": name,
    }


def evict(cluster: Recording, **more: Any) -> None:
    """Evict the running pod."""
    cluster.preempt(Evict(**{"id": "1", **ref(cluster, "runs"), "deadline_s": 100.0, **more}))


def condition(cluster: Recording) -> tuple[str, str]:
    """Status and reason of the running pod's DisruptionTarget."""
    conditions = cluster.view.pods["ns/runs"]["status"]["conditions"]
    return next(
        (
            (each["status"], each["reason"])
            for each in conditions
            if each["type"] == "DisruptionTarget"
        ),
        ("", ""),
    )


def test_prepare_writes_members_then_victims(cluster: Recording) -> None:
    """V13: the node first, then the condition; Cancel takes the node back."""
    member = NominatedMember(**ref(cluster, "waits"), node="ns.n")
    cluster.preempt(PreparePreemption("1", (member,), (PodRef(**ref(cluster, "runs")),)))
    cluster.wait(0)
    assert [deed for deed, _, _ in cluster.view.preempted.deeds] == ["bound", "nominated", "marked"]
    assert cluster.answers == [PreemptionPrepared("1")]
    cluster.preempt(CancelPreemption("1", (member,)))
    cluster.wait(0)
    assert "nominatedNodeName" not in cluster.view.pods["ns/waits"]["status"]


def test_an_evicted_pod_stops_within_its_grace_period(cluster: Recording) -> None:
    """V14: accepted, also again; the condition is ours in the end; another uid is gone."""
    evict(cluster)
    cluster.wait(0)
    evict(cluster)
    evict(cluster, uid="another")
    cluster.wait(19)
    assert condition(cluster) == ("True", "PreemptionByScheduler")
    ends = {answer.uid: answer.result for answer in cluster.answers if isinstance(answer, Evicted)}
    assert len(cluster.answers) == 3
    assert ends == {
        ref(cluster, "runs")["uid"]: EvictionResult.DONE,
        "another": EvictionResult.GONE,
    }
    cluster.wait(2)
    assert "ns/runs" not in cluster.view.pods


def test_a_budget_delays_an_eviction_until_it_allows_it(cluster: Recording) -> None:
    """V14: 429 is told once and tried again; what it allows is counted down."""
    cluster.create(MAKER.entry({"pdb": "w", "labels": {"app": "a"}, "allowed": 0}))
    evict(cluster)
    cluster.wait(10)
    assert [type(answer) for answer in cluster.answers] == [EvictionDelayed]
    cluster.patch("PodDisruptionBudget", "ns/w", {"status": {"disruptionsAllowed": 1}})
    cluster.wait(10)
    assert cluster.answers[1:] == [Evicted("1", ref(cluster, "runs")["uid"], EvictionResult.DONE)]
    (budget,) = cluster.of_kind("PodDisruptionBudget")
    assert budget["status"]["disruptionsAllowed"] == 0


@pytest.mark.parametrize("budgets", [1, 2])
def test_an_eviction_that_is_never_allowed_ends_at_its_deadline(
    cluster: Recording, budgets: int
) -> None:
    """V7, V14: one budget that allows none, or two whatever they allow."""
    for number in range(budgets):
        cluster.create(
            MAKER.entry({"pdb": f"w{number}", "labels": {"app": "a"}, "allowed": budgets - 1})
        )
    evict(cluster, deadline_s=30.0)
    cluster.wait(28.9)
    assert len(cluster.answers) == 1
    cluster.wait(0.2)
    (last,) = cluster.answers[1:]
    assert isinstance(last, Evicted)
    assert last.result is EvictionResult.BLOCKED


def test_a_finalizer_keeps_a_stopped_pod(cluster: Recording) -> None:
    """It stays for as long as the finalizer does, but not longer, and never less than its grace
    period.
    """
    cluster.patch("Pod", "ns/runs", {"metadata": {"finalizers": ["example.com/hold"]}})
    evict(cluster)
    cluster.wait(60)
    assert "ns/runs" in cluster.view.pods
    cluster.patch("Pod", "ns/runs", {"metadata": {"finalizers": None}})
    assert "ns/runs" not in cluster.view.pods


def test_a_controller_recreates_what_was_evicted(cluster: Recording) -> None:
    """The new pod has another uid and waits."""
    old = ref(cluster, "runs")["uid"]
    cluster.recreate(["ns/runs"])
    evict(cluster)
    cluster.wait(25)
    assert ref(cluster, "runs")["uid"] != old


def test_a_crash_leaves_the_rest_unwritten(cluster: Recording) -> None:
    """The scheduler dies after one write: the pod is marked and not evicted, and nobody is
    answered.
    """
    cluster.crash_after(1)
    cluster.preempt(PreparePreemption("1", (), (PodRef(**ref(cluster, "runs")),)))
    cluster.wait(0)
    assert condition(cluster) == ("True", "PreemptionByScheduler")
    assert cluster.answers == []
