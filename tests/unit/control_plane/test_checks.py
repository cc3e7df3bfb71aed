"""The observer must see what it is there to see: each test plays it a breach, or the closest thing
that is none.
"""

from typing import Any

from control_plane.checks import Checks
from control_plane.objects import gang_annotations, node, pod


def bound(name: str, on: str, phase: str = "Pending", **options: Any) -> dict[str, Any]:
    """A pod as the server tells it once it is bound; its requests are as the server would default
    them.
    """
    made = pod(name, "ns", **options)
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"] = {**resources["requests"], **resources.get("limits", {})}
    made["metadata"]["uid"] = f"uid-{name}"
    made["spec"]["nodeName"] = on
    made["status"] = {"phase": phase}
    return made


def checks(**nodes: int) -> Checks:
    """An observer that knows nodes with so many GPUs."""
    made = Checks()
    for name, gpus in nodes.items():
        made.node_changed("ADDED", node(name, gpus=gpus), 0.0)
    return made


def test_a_node_with_one_pod_too_many_is_told_once_with_its_resource() -> None:
    """Nine GPUs on a node of eight are a breach that names node, resource and pod; eight
    are none.
    """
    seen = checks(a=8)
    for index in range(8):
        seen.pod_changed("MODIFIED", bound(f"p{index}", "a", gpus=1), 1.0)
    assert seen.violations == []
    seen.pod_changed("MODIFIED", bound("p8", "a", gpus=1), 1.0)
    seen.pod_changed("MODIFIED", bound("p8", "a", "Running", gpus=1), 1.1)
    assert seen.violations == ["Node a is over-committed: 9 nvidia.com/gpu of 8 since ns/p8."]


def test_a_node_that_grew_before_the_bind_but_is_told_after_it_is_no_breach() -> None:
    """Two watches keep no common order: the version of the node says whether it had the room when
    the pod came.
    """
    for node_version, breaches in (("6", 0), ("8", 1)):
        seen = checks(a=0)
        late = bound("p", "a", gpus=1)
        late["metadata"]["resourceVersion"] = "7"
        seen.pod_changed("MODIFIED", late, 1.0)
        assert len(seen.violations) == 1
        grown = node("a", gpus=1)
        grown["metadata"]["resourceVersion"] = node_version
        seen.node_changed("MODIFIED", grown, 1.1)
        assert len(seen.violations) == breaches


def test_every_resource_is_counted_in_its_unit() -> None:
    """Milli-CPUs, binary bytes and the number of pods are compared as exact amounts."""
    seen = Checks()
    seen.node_changed("ADDED", node("a", cpu="1", memory="1Gi", gpus=0, pods=2), 0.0)
    seen.pod_changed("ADDED", bound("one", "a", cpu="500m", memory="512Mi"), 1.0)
    seen.pod_changed("ADDED", bound("two", "a", cpu="0.5", memory="536870912"), 1.0)
    assert seen.violations == []
    seen.pod_changed("ADDED", bound("three", "a", cpu="1m", memory="1"), 1.0)
    assert [text.split(": ")[1].split()[1] for text in seen.violations] == ["pods", "cpu", "memory"]


def test_a_finished_or_deleted_pod_frees_its_room() -> None:
    """The room of pods that succeeded or went is not counted, whichever is told first."""
    seen = checks(a=8)
    for ending in (("MODIFIED", "Succeeded"), ("DELETED", "Running")):
        seen.pod_changed("ADDED", bound("p", "a", gpus=8), 1.0)
        seen.pod_changed(ending[0], bound("p", "a", ending[1], gpus=8), 2.0)
    seen.pod_changed("DELETED", bound("p", "a", "Succeeded", gpus=8), 3.0)
    seen.pod_changed("ADDED", bound("q", "a", gpus=8), 4.0)
    assert seen.violations == []
    assert seen.gpus_in_use == [(1.0, 8), (2.0, 0), (1.0, 8), (2.0, 0), (4.0, 8)]


def test_a_gang_left_between_none_and_its_minimum_is_told_after_the_limit() -> None:
    """One of two members bound is a breach after 2 s, told once, not before; with both it
    never is.
    """
    seen = checks(a=8)
    for name in ("whole", "half"):
        seen.expect(f"ns/{name}", 2)
    for name in ("whole-0", "whole-1", "half-0"):
        seen.pod_changed("MODIFIED", bound(name, "a", gang=name.split("-")[0], gpus=1), 10.0)
    seen.look(11.9)
    assert seen.violations == []
    seen.look(12.1)
    seen.look(13.0)
    assert seen.violations == ["Gang ns/half has been partly bound for 2.1 s: 1 of 2."]
    assert (seen.started_s("ns/whole"), seen.started_s("ns/half")) == (10.0, None)
    assert (seen.bound("ns/whole"), seen.bound("ns/half")) == (2, 1)


def test_members_that_end_one_by_one_do_not_make_a_gang_partly_bound() -> None:
    """A gang that was whole shrinks as its members end; that is no breach."""
    seen = checks(a=8)
    seen.expect("ns/g", 2)
    mark: dict[str, Any] = {"annotations": gang_annotations("g", 2)}
    for name in ("g-0", "g-1"):
        seen.pod_changed("ADDED", bound(name, "a", **mark), 1.0)
    seen.pod_changed("MODIFIED", bound("g-0", "a", "Succeeded", **mark), 2.0)
    seen.pod_changed("DELETED", bound("g-0", "a", "Succeeded", **mark), 3.0)
    seen.look(60.0)
    assert seen.violations == []


def test_a_late_second_half_is_told_even_if_nobody_looked() -> None:
    """A gang that took 3 s to become whole is a breach also when the observer was not asked in
    between.
    """
    seen = checks(a=8)
    seen.expect("ns/g", 2)
    seen.pod_changed("ADDED", bound("g-0", "a", gang="g"), 1.0)
    seen.pod_changed("ADDED", bound("g-1", "a", gang="g"), 4.0)
    assert len(seen.violations) == 1
    assert seen.longest_partly_s == 3.0


def test_a_bind_of_another_takes_room_and_is_not_judged() -> None:
    """Who is not answered for may over-commit a node; nobody else may bind to it after that."""
    seen = Checks(judges=lambda pod, _: not pod["metadata"]["name"].startswith("rival"))
    seen.node_changed("ADDED", node("a", gpus=1), 0.0)
    for name in ("rival-0", "rival-1"):
        seen.pod_changed("MODIFIED", bound(name, "a", gpus=1), 1.0)
    assert seen.violations == []

    seen.pod_changed("MODIFIED", bound("plain", "a"), 1.1)
    assert seen.violations == []

    seen.pod_changed("MODIFIED", bound("p", "a", gpus=1), 1.2)
    assert seen.violations == ["Node a is over-committed: 3 nvidia.com/gpu of 1 since ns/p."]


def test_a_pod_that_moves_is_told() -> None:
    """It may only go from no node to one."""
    seen = checks(a=8, b=8)
    for node_name in ("a", "a", "b"):
        seen.pod_changed("MODIFIED", bound("p", node_name, gpus=1), 1.0)
    assert seen.violations == ["Pod ns/p left a for b."]


def test_a_gang_that_others_tore_may_be_partly_bound() -> None:
    """An excuse is for one gang."""
    seen = Checks(limit_s=2.0)
    for name in ("torn", "half"):
        seen.expect(f"ns/{name}", 2)
        seen.pod_changed("MODIFIED", bound(f"{name}-0", "a", gang=name), 1.0)
    seen.excuse("ns/torn")
    seen.look(4.0)
    assert [text.partition(" has")[0] for text in seen.violations] == ["Gang ns/half"]
