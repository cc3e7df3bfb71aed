"""Events: deduplicated, bounded, and last in every queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from gangsched.kube.http.faults import ApiFault, Unreachable
from gangsched.kube.write.pause import InFlight
from gangsched.kube.write.recorder import TEXTS_OF_AN_OBJECT, Recorder
from gangsched.model.protocol import ObjectRef, RecordEvent
from gangsched.model.reasons import EventReason
from tests.unit.kube.fakes import Answer, FakeBinds, FakeRequests, FakeTime, Sent, running, settle

POD = ObjectRef("v1", "Pod", "ns", "p", "u1")


class Desk:
    """A recorder at work in fake time."""

    def __init__(self, answer: Callable[[Sent], Answer] | None, capacity: int) -> None:
        self.time = FakeTime()
        self.api = FakeRequests(answer)
        self.binds = FakeBinds(self.time)
        self.evictions = InFlight(self.time.now)
        self.warnings: list[str] = []
        self.recorder = Recorder(
            self.api,
            (self.binds.in_flight, self.evictions),
            instance="host",
            capacity=capacity,
            runtime=self.time.runtime(self.warnings.append),
        )

    def notes(self) -> list[str]:
        return [sent.body["note"] for sent in self.api.of("POST")]


@asynccontextmanager
async def at_work(
    answer: Callable[[Sent], Answer] | None = None, capacity: int = 100
) -> AsyncIterator[Desk]:
    desk = Desk(answer, capacity)
    async with running(desk.recorder.run()):
        yield desk


def event(note: str = "no room", about: ObjectRef = POD, warning: bool = False) -> RecordEvent:
    return RecordEvent(about, "FailedScheduling", note, warning=warning)


async def test_event() -> None:
    """An Event has everything events.k8s.io/v1 asks for."""
    async with at_work() as desk:
        desk.recorder.record(event(warning=True))
        assert await desk.recorder.drain(1) == 0
        (sent,) = desk.api.sent
        name = sent.body["metadata"].pop("name")
        assert name.startswith("p.")
        assert len(name) == 18
        assert (sent.method, sent.path) == ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events")
        assert sent.body == {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": "ns"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "gangsched",
            "reportingInstance": "host",
            "action": "Scheduling",
            "reason": "FailedScheduling",
            "type": "Warning",
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "ns",
                "name": "p",
                "uid": "u1",
            },
            "note": "no room",
        }


async def test_cluster_scoped_objects() -> None:
    """An Event about an object without namespace lives in `default`."""
    async with at_work() as desk:
        desk.recorder.record(event(about=ObjectRef("v1", "Node", "", "n", "u")))
        await desk.recorder.drain(1)
        (sent,) = desk.api.sent
        assert sent.path == "/apis/events.k8s.io/v1/namespaces/default/events"
        assert "namespace" not in sent.body["regarding"]


async def test_repetition_becomes_a_series() -> None:
    """The same words within ten minutes are one Event; its count is written at most once
    a minute.
    """
    async with at_work() as desk:
        for _ in range(30):
            desk.recorder.record(event())
            await desk.time.advance(10)
        assert len(desk.api.of("POST")) == 1
        patches = desk.api.of("PATCH")
        assert 3 <= len(patches) <= 5
        created = desk.api.of("POST")[0].body["metadata"]["name"]
        assert all(patch.path.endswith(f"/{created}") for patch in patches)
        counts = [patch.body["series"]["count"] for patch in patches]
        assert counts == sorted(set(counts))
        await desk.time.advance(75)
        assert desk.api.of("PATCH")[-1].body["series"] == {
            "count": 30,
            "lastObservedTime": "2026-01-01T00:04:50.000000Z",
        }


async def test_what_is_said_of_pods_that_are_bound_is_not_remembered() -> None:
    """It is said once for a bind or a start and ends the waiting; 20,000 would take 14 MB. Who
    waits is remembered.
    """
    async with at_work(capacity=200) as desk:
        bound = [ObjectRef("v1", "Pod", "ns", f"p{number}", f"u{number}") for number in range(40)]
        for about in bound:
            desk.recorder.record(event(about=about))
        for about in bound:
            desk.recorder.record(
                RecordEvent(about, EventReason.SCHEDULED, f"bound {about.name}", action="Binding")
            )
            desk.recorder.record(RecordEvent(about, EventReason.GANG_SCHEDULED, "1 pod is bound"))
        desk.recorder.record(event())
        assert await desk.recorder.drain(1) == 0
        assert len(desk.api.of("POST")) == 121
        assert len(desk.recorder._known) == 1


async def test_what_was_said_of_what_is_gone_is_forgotten() -> None:
    """What is yet to be written is written; nothing is kept for ten minutes for objects that live
    for ten seconds.
    """
    async with at_work() as desk:
        desk.recorder.record(event())
        desk.recorder.record(event(about=ObjectRef("v1", "Pod", "ns", "q", "u2")))
        desk.recorder.forget("u1")
        desk.recorder.forget("never there")
        assert await desk.recorder.drain(1) == 0
        assert len(desk.api.of("POST")) == 2
        assert len(desk.recorder._known) == 1
        assert "u2" in desk.recorder._known


async def test_the_last_texts_about_an_object_are_remembered() -> None:
    """What alternates is one Event each, and whoever says something else each time does not fill
    the memory.
    """
    async with at_work() as desk:
        for _ in range(5):
            for note in ("a", "b", "c", "d"):
                desk.recorder.record(event(note))
        for number in range(10):
            desk.recorder.record(event(f"text {number}"))
        desk.recorder.record(event("a"))
        assert await desk.recorder.drain(1) == 0
        assert desk.notes() == [
            "a",
            "b",
            "c",
            "d",
            *(f"text {number}" for number in range(10)),
            "a",
        ]
        assert [len(desk.recorder._known.get(POD.uid) or ())] == [TEXTS_OF_AN_OBJECT]


async def test_other_words_and_later_ones_are_new_events() -> None:
    """Another note, another object, or the same after ten minutes is an Event of its own."""
    async with at_work() as desk:
        desk.recorder.record(event("a"))
        desk.recorder.record(event("b"))
        desk.recorder.record(event("a", about=ObjectRef("v1", "Pod", "ns", "q", "u2")))
        await desk.time.advance(601)
        desk.recorder.record(event("a"))
        await desk.recorder.drain(1)
        assert len({sent.body["metadata"]["name"] for sent in desk.api.of("POST")}) == 4


async def test_full_queue_drops_oldest_normal_first() -> None:
    """What does not fit is dropped and counted, and warnings outlive the rest."""
    async with at_work(capacity=3) as desk:
        desk.binds.begin()
        desk.recorder.record(event("w1", warning=True))
        for note in ("n1", "n2", "n3"):
            desk.recorder.record(event(note))
        desk.recorder.record(event("w2", warning=True))
        desk.binds.end()
        await desk.recorder.drain(1)
        assert sorted(desk.notes()) == ["n3", "w1", "w2"]
        assert desk.recorder.counts.dropped == 2


async def test_what_was_dropped_is_said_when_it_is_so_again() -> None:
    """It was said to nobody, so it is no repetition; what still waits is."""
    async with at_work(capacity=1) as desk:
        desk.binds.begin()
        desk.recorder.record(event("dropped"))
        desk.recorder.record(event("waits"))
        assert desk.recorder.counts.dropped == 1
        desk.recorder.record(event("waits"))
        desk.binds.end()
        assert await desk.recorder.drain(1) == 0
        desk.recorder.record(event("dropped"))
        assert await desk.recorder.drain(1) == 0
        assert desk.notes() == ["waits", "dropped"]


async def test_never_ahead_of_binds() -> None:
    """While binds are under way no Event is written, for some seconds at least."""
    async with at_work() as desk:
        desk.binds.begin()
        desk.recorder.record(event())
        await desk.time.advance(4)
        assert desk.api.sent == []
        desk.binds.end()
        await desk.time.advance(0.25)
        assert desk.notes() == ["no room"]


async def test_never_ahead_of_evictions() -> None:
    """In a wave of preemption most Events are about victims; between evictions and binds is no
    pause for them.
    """
    async with at_work() as desk:
        desk.evictions.begin()
        desk.evictions.begin()
        desk.recorder.record(event())
        desk.evictions.end()
        await desk.time.advance(2)
        assert desk.api.sent == []
        desk.binds.begin()
        desk.evictions.end()
        await desk.time.advance(1)
        desk.binds.end()
        await desk.time.advance(0.15)
        assert desk.api.sent == []
        await desk.time.advance(0.1)
        assert desk.notes() == ["no room"]


async def test_gangs_do_not_wait_behind_their_members() -> None:
    """The Event of a gang is among the first, however many of its members were told before it."""
    gang = ObjectRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", "ns", "g", "u9")
    async with at_work() as desk:
        desk.binds.begin()
        for number in range(50):
            about = ObjectRef("v1", "Pod", "ns", f"p{number}", f"u{number}")
            desk.recorder.record(event(f"pod {number}", about, warning=True))
        desk.recorder.record(event("gang", about=gang, warning=True))
        await settle()
        desk.binds.end()
        await settle()
        assert "gang" in desk.notes()[:4]
        await desk.time.advance(0.1)
        assert len(desk.notes()) == 51


async def test_pods_wait_for_a_pause_in_binding() -> None:
    """Between two bursts of binds only warnings and Events about groups are written; pods' come
    when it is quiet.
    """
    group = ObjectRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", "ns", "g", "u2")
    async with at_work() as desk:
        desk.binds.begin()
        desk.recorder.record(event("pod 1"))
        desk.recorder.record(event("pod 2"))
        desk.recorder.record(event("warning", warning=True))
        for _ in range(5):
            desk.binds.end()
            await desk.time.advance(0.12)
            desk.binds.begin()
            await desk.time.advance(0.12)
        assert desk.notes() == ["warning"]
        desk.binds.end()
        desk.recorder.record(event("group", about=group))
        await settle()
        assert desk.notes() == ["warning", "group"]
        await desk.time.advance(0.5)
        assert desk.notes() == ["warning", "group", "pod 1", "pod 2"]


async def test_binds_without_a_pause_do_not_silence_events() -> None:
    """An Event older than some seconds is written whatever goes on, and so are those behind it."""
    async with at_work() as desk:
        desk.binds.begin()
        for number in range(20):
            desk.recorder.record(event(f"pod {number}"))
        await desk.time.advance(5.5)
        assert len(desk.notes()) == 20


async def test_evictions_without_a_pause_do_not_silence_events() -> None:
    """Attack: a tenant whose evictions never end, or a webhook that answers none; others' Events
    are written.
    """
    async with at_work() as desk:
        desk.evictions.begin()
        desk.recorder.record(event("warning", warning=True))
        desk.recorder.record(event("pod"))
        await desk.time.advance(5.5)
        assert sorted(desk.notes()) == ["pod", "warning"]


async def test_slow_write_is_not_queued_again() -> None:
    """An Event that is still being written when series are swept is not taken for one that has
    grown.
    """
    async with at_work() as desk:
        desk.api.blocked = asyncio.Event()
        desk.recorder.record(event())
        await desk.time.advance(20)
        desk.api.blocked.set()
        await desk.time.advance(20)
        assert [sent.method for sent in desk.api.sent] == ["POST"]


async def test_lost_answers_make_no_duplicates() -> None:
    """A retry carries the same name, and its conflict means that the first try had arrived."""
    queue: list[Answer] = [Unreachable("No answer."), ApiFault(409, "AlreadyExists", "exists")]
    async with at_work(lambda sent: queue.pop(0)) as desk:
        desk.recorder.record(event())
        await desk.time.advance(2)
        first, second = desk.api.sent
        assert first.body == second.body
        assert (desk.recorder.counts.written, desk.recorder.counts.dropped) == (1, 0)


async def test_gives_up_after_a_few_tries() -> None:
    """An Event that cannot be written is let go, and said so once, and the next ones are still
    tried.
    """
    async with at_work(lambda sent: ApiFault(403, "Forbidden", "no events for you")) as desk:
        desk.recorder.record(event("a"))
        desk.recorder.record(event("b"))
        assert await desk.recorder.drain(1) == 0
        assert (len(desk.api.sent), desk.recorder.counts.dropped) == (2, 2)
        assert desk.warnings == ["Cannot write Events: no events for you; giving up."]


@pytest.mark.parametrize(
    "fault",
    [
        ApiFault(404, "NotFound", 'namespaces "ns" not found'),
        ApiFault(
            403,
            "Forbidden",
            "unable to create new content in namespace ns because it is being terminated",
        ),
    ],
)
async def test_events_of_a_namespace_that_goes_are_dropped_silently(fault: ApiFault) -> None:
    """A deleted or terminating namespace takes no Event: no second try, and no word to the
    administrator.
    """
    async with at_work(lambda sent: fault) as desk:
        desk.recorder.record(event())
        await desk.time.advance(60)
        assert (len(desk.api.sent), desk.recorder.counts.dropped, desk.warnings) == (1, 1, [])


async def test_an_object_gets_25_events_and_then_one_in_five_minutes() -> None:
    """Events about one object are limited as client-go's spam filter does; those about others are
    not held up.
    """
    async with at_work() as desk:
        for number in range(40):
            desk.recorder.record(event(f"note {number}"))
        desk.recorder.record(event("other", about=ObjectRef("v1", "Pod", "ns", "q", "u2")))
        await desk.time.advance(1)
        assert len(desk.notes()) == 26
        assert "other" in desk.notes()
        assert desk.recorder.counts.filtered == 15
        desk.recorder.record(event("too early"))
        await desk.time.advance(300)
        desk.recorder.record(event("in time"))
        await desk.time.advance(1)
        assert desk.notes()[26:] == ["in time"]
