"""PodGroups from two sources: the stream knows more about what is new, the list about what
vanished.
"""

from __future__ import annotations

from typing import Any

from gangsched.kube.read.podgroup_store import PodGroupStore, revision
from gangsched.model.objects import PodGroup
from gangsched.model.protocol import Applied, Gone, Message, Replaced, Unread

GROUP = "scheduling.x-k8s.io"


def body(name: str, rv: int, minimum: Any = 2, uid: str = "") -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(rv),
    }
    return {
        "metadata": metadata | {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"minMember": minimum},
    }


class Kept:
    """A store with what it said."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reports: list[str] = []
        self.store = PodGroupStore(GROUP, self.messages.append, self.reports.append)

    def applied(self, found: dict[str, Any]) -> None:
        self.store.applied(found, "v1alpha1")

    def relist(self, *bodies: dict[str, Any], rv: int) -> None:
        read = [self.store.read(found, "v1alpha1") for found in bodies]
        self.store.replace([found for found in read if found is not None], str(rv))

    def said(self) -> list[str]:
        short = []
        for message in self.messages:
            match message:
                case Applied(item=PodGroup() as found):
                    short.append(f"+{found.name}@{found.resource_version}")
                case Gone(key=key):
                    short.append(f"-{key.partition('/')[2]}")
                case Replaced(items=found_all):
                    short.append(
                        "=" + ",".join(sorted(f"{g.name}@{g.resource_version}" for g in found_all))
                    )
                case Unread(kind=kind, api_group=api_group):
                    assert (kind, api_group) == (PodGroup, self.store.api_group)
                    short.append("unread")
        self.messages.clear()
        return short


def test_events_become_messages_once() -> None:
    """The stream lists again what we know already; only news is passed on."""
    kept = Kept()
    kept.relist(body("a", 3), rv=5)
    kept.applied(body("a", 3))
    kept.applied(body("a", 6))
    kept.applied(body("a", 4))
    assert kept.said() == ["=a@3", "+a@6"]
    kept.store.gone(body("a", 7))
    kept.store.gone(body("a", 7))
    assert kept.said() == ["-a"]


def test_first_list_is_told_even_when_empty() -> None:
    """The state learns that there is nothing; later lists are told when they change something."""
    kept = Kept()
    kept.relist(rv=5)
    kept.relist(rv=6)
    kept.relist(body("a", 7), rv=8)
    kept.relist(body("a", 7), rv=9)
    assert kept.said() == ["=", "=a@7"]


def test_ghosts_are_swept() -> None:
    """What vanished while nobody listened is gone with the next list."""
    kept = Kept()
    kept.applied(body("a", 3))
    kept.applied(body("ghost", 4))
    kept.relist(body("a", 3), rv=10)
    assert kept.said() == ["+a@3", "+ghost@4", "=a@3"]


def test_list_does_not_sweep_what_was_created_after_it() -> None:
    """An object the stream showed after the list's version stays, and keeps its newer version."""
    kept = Kept()
    kept.relist(body("a", 3), rv=5)
    kept.applied(body("new", 12))
    kept.applied(body("a", 11))
    kept.relist(body("a", 3), rv=10)
    assert kept.said() == ["=a@3", "+new@12", "+a@11"]


def test_list_does_not_bring_back_what_was_deleted_after_it() -> None:
    """An object the stream saw deleted after the list's version stays gone, also for late events
    about it.
    """
    kept = Kept()
    kept.relist(body("a", 3), rv=5)
    kept.store.gone(body("a", 12))
    kept.relist(body("a", 3), rv=10)
    kept.applied(body("a", 9))
    assert kept.said() == ["=a@3", "-a"]
    kept.relist(rv=20)
    kept.applied(body("a", 25, uid="other"))
    assert kept.said() == ["+a@25"]


def test_a_stream_behind_the_last_list_brings_nothing_back() -> None:
    """An object that was recreated before the list is not replaced by its predecessor, nor deleted
    with it.
    """
    kept = Kept()
    kept.relist(body("a", 3, uid="old"), rv=5)
    kept.relist(body("a", 9, uid="new"), rv=10)
    assert kept.said() == ["=a@3", "=a@9"]
    kept.applied(body("a", 7, uid="old"))
    kept.store.gone(body("a", 8, uid="old"))
    kept.applied(body("a", 9, uid="new"))
    assert kept.said() == []
    kept.store.gone(body("a", 12, uid="new"))
    assert kept.said() == ["-a"]


def test_api_group_that_disappears_takes_its_objects_along() -> None:
    """Without the definition there are no PodGroups."""
    kept = Kept()
    kept.applied(body("a", 3))
    kept.store.replace_with_none()
    kept.store.replace_with_none()
    assert kept.said() == ["+a@3", "unread"]


def test_what_is_no_pod_group_is_told_and_skipped() -> None:
    """A body without a uid is reported; bad spec values are the api package's business and pass."""
    kept = Kept()
    kept.applied({"metadata": {"name": "x", "namespace": "ns"}})
    kept.applied(body("a", 3, minimum="many"))
    assert kept.said() == ["+a@3"]
    assert len(kept.reports) == 1


def test_revisions() -> None:
    """Versions compare as numbers, not as text."""
    assert revision("10") > revision("9") > revision("") == revision("x")
