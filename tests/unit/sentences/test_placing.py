"""The sentences: one of something is told as one, and what moves is kept from what stays."""

from __future__ import annotations

from msgspec import structs

from gangsched.core import findings
from gangsched.core.cycle import plan
from gangsched.model.gang import Gang, Group, Refusal
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import NoChoice, SetAsideByOrder
from gangsched.sentences import Sentences, say
from tests.builders import gang, group, node, pod, snapshot, verdict_on


def test_one_is_not_told_as_many() -> None:
    """Counts of one read as people say them, and others as they did."""
    assert say(findings.permitted(1)).text == "1 pod is placed"
    assert say(findings.permitted(2)).text == "2 pods are placed"
    group = Group(id="ns/g", gangs=())
    assert (
        say(findings.holds_summary(group, 1, (("ns/g", 1),), ())).now
        == "1 member holds a node, waiting for 1 more pod of ns/g"
    )
    assert (
        say(findings.holds_summary(group, 2, (("ns/g", 1),), ())).now
        == "2 members hold a node, waiting for 1 more pod of ns/g"
    )
    assert say(findings.strict_holds_nothing(1)).text.endswith("; 1 hold was released")
    assert say(findings.strict_holds_nothing(3)).text.endswith("; 3 holds were released")


def test_gated_member_is_counted_once() -> None:
    """P1: it is gated and not missing as well; one that is being deleted does not count, so another
    one is missing.
    """
    pods = [pod(f"g-{index}") for index in range(2)]
    gated = findings.waiting_for_members(
        Gang(id="ns/g", min_member=5, pending=tuple(pods), gated=2)
    )
    assert say(gated).stable == "waiting for members of gang ns/g: fewer than 5 are ready"
    assert say(gated).now == "2 of 5 are ready; 2 are gated; 1 is missing"
    going = findings.waiting_for_members(
        Gang(id="ns/g", min_member=3, pending=tuple(pods), terminating=1)
    )
    assert say(going).now == "2 of 3 are ready; 1 is missing; 1 is being deleted and does not count"
    all_there = findings.waiting_for_members(
        Gang(id="ns/g", min_member=3, pending=tuple(pods), gated=4)
    )
    assert say(all_there).now == "2 of 3 are ready; 4 are gated"


def test_counts_of_a_choice_that_does_not_fit_are_kept_from_what_stays() -> None:
    """E1: pods are not written anew whenever a node becomes free: the counts are in one place."""

    def told(used: int) -> Sentences:
        nodes = [node("a", 8), node("b", 8)]
        members = [pod(f"g-{index}", gpus=8) for index in range(2)]
        proposal = plan(
            snapshot(nodes, [(pod("o", gpus=used), "a")]), [group(gang("ns/g", members))], now_s=0.0
        )
        first = verdict_on(proposal, "ns/g").told
        return say(
            structs.replace(
                first,
                fact=NoChoice(composite="ns/svc", lack=2, ready=3, proven=True, first=first.fact),
            )
        )

    one, other = told(1), told(2)
    assert one.stable == other.stable
    assert one.text != other.text
    assert one.text.startswith(
        "no 2 of the 3 ready children of ns/svc fit together. Gang ns/g needs 2 pods of 8"
        " nvidia.com/gpu; not all found a node. 1 fits, then no eligible node has 8 free."
    )


def test_a_pod_without_a_gang_is_told_as_a_pod() -> None:
    """Its group has a name that only the scheduler knows."""
    assert (
        say(findings.timed_out(Gang(id="pod:ns/p", timed_out=("p",)))).text
        == "pod ns/p timed out earlier; to try again, delete it or remove the timeout annotation"
    )
    aside = Refusal(Reason.PAUSED, SetAsideByOrder("pod:ns/p"))
    assert say(aside).text == "pod ns/p is set aside by an administrator"


def test_a_minimum_that_overrides_the_pod_groups_is_told() -> None:
    """I3: what a pod says wins, which somebody who reads the PodGroup does not expect."""
    note = f"example.com/{'x' * 60} overrides it"
    told = findings.waiting_for_members(Gang(id="ns/g", min_member=5, min_note=note))
    assert (
        say(told).stable == f"waiting for members of gang ns/g: not all of them are ready. {note}"
    )
    short = findings.waiting_for_members(Gang(id="ns/g", min_member=5, min_note="x overrides it"))
    assert (
        say(short).stable
        == "waiting for members of gang ns/g (x overrides it): not all of them are ready"
    )
