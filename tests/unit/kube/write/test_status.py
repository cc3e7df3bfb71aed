"""Status writing: the newest word counts, unchanged words are not written, and binds come first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gangsched.kube.http.client import MERGE_PATCH, STRATEGIC_PATCH
from gangsched.kube.http.faults import ApiFault, Cause, Fault, Fenced, Malformed, Unreachable
from gangsched.kube.write.binder import BindFate
from gangsched.kube.write.status import StatusWriter, merge_conditions
from gangsched.model.protocol import (
    BindFailed,
    Bound,
    MarkTimedOut,
    Message,
    SetPodCondition,
    SetPodGroupStatus,
    WriteUndecided,
)
from tests.unit.kube.fakes import Answer, FakeBinds, FakeRequests, FakeTime, Sent, running, settle


class Desk:
    """A status writer at work in fake time."""

    def __init__(self, answer: Callable[[Sent], Answer] | None) -> None:
        self.time = FakeTime()
        self.api = FakeRequests(answer)
        self.binds = FakeBinds(self.time)
        self.warnings: list[str] = []
        self.told: list[Message] = []
        self.writer = StatusWriter(
            self.api,
            self.binds,
            self.told.append,
            runtime=self.time.runtime(self.warnings.append),
        )

    def phases(self) -> list[str]:
        """The phases written to PodGroups, in order."""
        return [sent.body["status"]["phase"] for sent in self.api.of("PATCH")]

    def messages(self) -> list[str]:
        """The messages of the conditions written, in order."""
        return [sent.body["status"]["conditions"][0]["message"] for sent in self.api.of("PATCH")]


@asynccontextmanager
async def at_work(answer: Callable[[Sent], Answer] | None = None) -> AsyncIterator[Desk]:
    desk = Desk(answer)
    async with running(desk.writer.run()):
        yield desk


def word(message: str, uid: str = "u1", reason: str = "Unschedulable") -> SetPodCondition:
    return SetPodCondition(uid, "ns", "p", reason, message)


def group_status(uid: str = "g1", **status: Any) -> SetPodGroupStatus:
    return SetPodGroupStatus("scheduling.x-k8s.io", "v1alpha1", "ns", "g", uid, status)


def calm(phase: str, *, urgent: bool = False, name: str = "g") -> SetPodGroupStatus:
    """The status of a gang that waits for nothing, unless it is `urgent`."""
    return msgspec.structs.replace(group_status(name, phase=phase), name=name, urgent=urgent)


async def test_condition_request() -> None:
    """PodScheduled=False goes through pods/status with the pod's uid as precondition (E1)."""
    async with at_work() as desk:
        desk.writer.put(word("no room"))
        assert await desk.writer.drain(1) == 0
        (sent,) = desk.api.sent
        assert (sent.method, sent.path) == ("PATCH", "/api/v1/namespaces/ns/pods/p/status")
        assert sent.content_type == STRATEGIC_PATCH
        assert sent.body == {
            "metadata": {"uid": "u1"},
            "status": {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "no room",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }
                ]
            },
        }


async def test_newest_word_replaces_unsent_ones() -> None:
    """Of several orders for a pod only the last is sent."""
    async with at_work() as desk:
        for message in ("one", "two", "three"):
            desk.writer.put(word(message))
        desk.writer.put(word("other", uid="u2"))
        await desk.writer.drain(1)
        assert sorted(desk.messages()) == ["other", "three"]


async def test_words_of_one_pod_stay_in_order() -> None:
    """An order that comes while an older one is on its way is sent after it, never beside it."""
    async with at_work() as desk:
        desk.api.blocked = asyncio.Event()
        desk.writer.put(word("one"))
        await settle()
        desk.writer.put(word("two"))
        await settle()
        assert desk.messages() == ["one"]
        desk.api.blocked.set()
        await desk.writer.drain(1)
        assert desk.messages() == ["one", "two"]


@pytest.mark.parametrize(
    ("fault", "is_undecided"),
    [
        (Unreachable("timed out"), True),
        (Malformed("a page"), True),
        (ApiFault(504, is_status=False), True),
        (ApiFault(500, "InternalError"), True),
        (ApiFault(429, "TooManyRequests"), False),
        (ApiFault(409, "Conflict"), False),
        (Fenced("not ours"), False),
    ],
)
async def test_a_word_that_may_be_written_late_is_reported(
    fault: Fault, *, is_undecided: bool
) -> None:
    """Whoever sent it must look again, since it may be written over the next word (E1)."""
    answers: list[Answer] = [fault]
    async with at_work(lambda sent: answers.pop() if answers else {}) as desk:
        desk.writer.put(word("one"))
        await settle()
        desk.writer.put(word("two"))
        await desk.writer.drain(1)

    assert desk.messages() == ["one", "two"]
    assert desk.told == ([WriteUndecided("u1")] if is_undecided else [])


async def test_unchanged_word_is_not_written_again() -> None:
    """The same reason and message is written once, unless the last time is long ago."""
    async with at_work() as desk:
        for message in ("one", "one", "two", "one"):
            desk.writer.put(word(message))
            await desk.writer.drain(1)
        assert desk.messages() == ["one", "two", "one"]
        assert desk.writer.conditions.counts.skipped == 1
        await desk.time.advance(61)
        desk.writer.put(word("one"))
        await desk.writer.drain(1)
        assert len(desk.messages()) == 4


async def test_what_was_written_into_what_is_gone_is_forgotten() -> None:
    """Neither a pod's condition nor a PodGroup's status is kept for an object that does not exist
    any more.
    """
    async with at_work() as desk:
        desk.writer.put(word("one"))
        desk.writer.put(word("two", uid="u2"))
        desk.writer.put(group_status(phase="Pending"))
        assert await desk.writer.drain(1) == 0
        for uid in ("u1", "g1", "never there"):
            desk.writer.forget(uid)
        assert "u2" in desk.writer._pods.written
        assert len(desk.writer._pods.written) == 1
        assert len(desk.writer._statuses.written) == 0


async def test_binds_come_first_but_not_for_ever() -> None:
    """While binds are under way words wait, at most 0.7 s (E1: told within a second)."""
    async with at_work() as desk:
        desk.binds.begin()
        desk.writer.put(word("one"))
        await desk.time.advance(0.6)
        desk.writer.put(word("two"))
        assert desk.api.sent == []
        await desk.time.advance(0.11)
        assert desk.messages() == ["two"]
        desk.writer.put(word("three"))
        await settle()
        assert desk.messages() == ["two"]
        desk.binds.end()
        await settle()
        assert desk.messages() == ["two", "three"]


async def test_status_of_a_gang_that_waits_for_nothing_waits_for_a_pause() -> None:
    """It is written when nothing has been bound for 0.2 s, or after five seconds of binds; an
    urgent one earlier.
    """
    async with at_work() as desk:
        binds = desk.binds
        desk.writer.put(calm("bound a moment ago"))
        binds.begin()
        binds.end()
        await desk.time.advance(0.15)
        assert desk.api.sent == []
        await desk.time.advance(0.06)
        assert desk.phases() == ["bound a moment ago"]

        desk.writer.put(calm("binds without end"))
        for _ in range(49):
            binds.begin()
            await desk.time.advance(0.08)
            binds.end()
            await desk.time.advance(0.02)
        assert len(desk.phases()) == 1
        binds.begin()
        await desk.time.advance(0.05)
        assert len(desk.phases()) == 1
        await desk.time.advance(0.06)
        assert desk.phases()[1:] == ["binds without end"]

        desk.writer.put(group_status(phase="urgent"))
        await desk.time.advance(0.71)
        assert desk.phases()[2:] == ["urgent"]


async def test_what_waits_for_a_pause_holds_up_nothing_urgent() -> None:
    """However many wait for one; and what becomes urgent meanwhile is written as such, once."""
    async with at_work() as desk:
        desk.binds.begin()
        for urgent in (True, False):
            for number in range(20):
                desk.writer.put(
                    calm(
                        "calm" if not urgent else "urgent no more", urgent=urgent, name=f"g{number}"
                    )
                )
        await settle()
        desk.writer.put(calm("urgent", urgent=True, name="g3"))
        desk.writer.put(calm("urgent", urgent=True, name="g19"))
        desk.writer.put(calm("urgent", urgent=True, name="other"))
        await desk.time.advance(0.71)
        assert desk.phases() == ["urgent"] * 3
        desk.binds.end()
        await desk.time.advance(0.21)
        assert sorted(desk.phases()) == ["calm"] * 18 + ["urgent"] * 3


async def test_a_replaced_word_keeps_its_age() -> None:
    """A verdict that changes all the time is still told in time, however long the queue."""
    async with at_work() as desk:
        desk.binds.begin()
        for number in range(8):
            desk.writer.put(word("first in line", uid=f"other{number}"))
        desk.writer.put(word("one"))
        await desk.time.advance(0.6)
        desk.writer.put(word("two"))
        await desk.time.advance(0.11)
        assert sorted(desk.messages()) == ["first in line"] * 8 + ["two"]


async def test_failed_word_does_not_come_back_over_a_newer_one() -> None:
    """When a write fails and a newer order is there already, the newer one is written, at once."""
    queue: list[Answer] = [Unreachable("No answer."), {}]
    async with at_work(lambda sent: queue.pop(0)) as desk:
        desk.api.blocked = asyncio.Event()
        desk.writer.put(word("one"))
        await settle()
        desk.writer.put(word("two"))
        desk.api.blocked.set()
        await settle()
        assert desk.messages() == ["one", "two"]
        assert await desk.writer.drain(1) == 0


async def test_silent_about_pods_that_are_bound() -> None:
    """A word about a pod being bound waits for the bind, and is dropped when that succeeds."""
    async with at_work() as desk:
        desk.binds.fates = {"u1": BindFate.PENDING, "u2": BindFate.PENDING}
        desk.writer.put(word("one"))
        desk.writer.put(word("two", uid="u2"))
        await desk.time.advance(0.5)
        assert desk.api.sent == []
        desk.binds.fates = {"u1": BindFate.BOUND}
        desk.writer.answered(Bound("u1", "n1"))
        desk.writer.answered(BindFailed("u2", "n1", "no"))
        await desk.time.advance(0.5)
        assert desk.messages() == ["two"]
        assert await desk.writer.drain(1) == 0


async def test_retried_until_done() -> None:
    """A word that could not be written is tried again with backoff; a newer one takes its place."""
    fault: list[Answer] = [Unreachable("No answer.")]
    async with at_work(lambda sent: fault[0]) as desk:
        desk.writer.put(word("one"))
        await desk.time.advance(3)
        tried = len(desk.messages())
        assert 2 < tried < 8
        desk.writer.put(word("two"))
        fault[0] = {}
        assert await desk.writer.drain(1) == 0
        assert desk.messages()[tried:] == ["two"]
        assert desk.warnings == ["Cannot write pod conditions: No answer; trying again."]


@pytest.mark.parametrize(
    "fault",
    [
        ApiFault(404, "NotFound", "gone"),
        ApiFault(
            409, "Conflict", "Precondition failed: UID in precondition: u1, UID in object meta: u2"
        ),
        ApiFault(
            422,
            "Invalid",
            'Pod "p" is invalid: metadata.uid: Invalid value: "u1": field is immutable',
            causes=(Cause("FieldValueInvalid", "field is immutable", "metadata.uid"),),
        ),
    ],
)
async def test_dropped_when_the_pod_is_gone(fault: ApiFault) -> None:
    """A pod that is deleted or recreated is not written to, and nobody needs to know."""
    async with at_work(lambda sent: fault) as desk:
        desk.writer.put(word("one"))
        desk.writer.put(MarkTimedOut("u1", "ns", "p"))
        assert await desk.writer.drain(1) == 0
        assert len(desk.api.sent) == 2
        assert desk.warnings == []


@pytest.mark.parametrize("status", [400, 422])
async def test_a_refusal_that_names_a_squid_is_told(status: int) -> None:
    """A pod whose name contains "uid" is not taken for one that is gone."""
    async with at_work(
        lambda sent: ApiFault(status, "Invalid", 'Pod "squid-0" is invalid: status: Forbidden')
    ) as desk:
        desk.writer.put(word("one"))
        await desk.time.advance(1)
        assert desk.warnings == [
            'Cannot write pod conditions: Pod "squid-0" is invalid: status: Forbidden; giving up.'
        ]


async def test_conflict_is_retried_and_refusal_told() -> None:
    """A write that lost a race is tried again; one the server will never take is reported and given
    up.
    """
    queue: list[Answer] = [
        ApiFault(409, "Conflict", "please apply your changes to the latest version"),
        {},
    ]
    async with at_work(lambda sent: queue.pop(0)) as desk:
        desk.writer.put(word("one"))
        await desk.time.advance(1)
        assert desk.messages() == ["one", "one"]
        queue.append(ApiFault(422, "Invalid", "message: too long"))
        desk.writer.put(word("two"))
        await desk.time.advance(10)
        assert len(desk.messages()) == 3
        assert desk.warnings[-1] == "Cannot write pod conditions: message: too long; giving up."


async def test_timeout_annotation() -> None:
    """The annotation travels through pods/status and is retried until it is there (T2)."""
    queue: list[Answer] = [ApiFault(500, "", "oops"), {}]
    async with at_work(lambda sent: queue.pop(0)) as desk:
        desk.writer.put(MarkTimedOut("u1", "ns", "p"))
        await desk.time.advance(1)
        assert [sent.path for sent in desk.api.sent] == ["/api/v1/namespaces/ns/pods/p/status"] * 2
        assert desk.api.sent[1].body == {
            "metadata": {
                "uid": "u1",
                "annotations": {"gang.scheduling.koordinator.sh/timeout": "true"},
            }
        }


PATH = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups/g"
DEGRADED = {"type": "Degraded", "status": "True", "reason": "R", "message": "m"}


async def test_pod_group_status() -> None:
    """A status is merged through the subresource; one that changes nothing is not written (E3)."""
    async with at_work() as desk:
        for scheduled in (1, 1, 2):
            desk.writer.put(group_status(phase="Pending", scheduled=scheduled))
            await desk.writer.drain(1)
        assert [(s.method, s.path, s.content_type) for s in desk.api.sent] == [
            ("PATCH", PATH + "/status", MERGE_PATCH)
        ] * 2
        assert desk.api.sent[1].body == {
            "metadata": {"uid": "g1"},
            "status": {"phase": "Pending", "scheduled": 2},
        }


async def test_transition_times_survive() -> None:
    """A condition keeps its time while its status stays, over our own writes."""
    async with at_work() as desk:
        for message, state in (("m", "True"), ("n", "True"), ("n", "False"), ("n", "False")):
            desk.writer.put(
                group_status(conditions=[{**DEGRADED, "message": message, "status": state}])
            )
            await desk.writer.drain(1)
            await desk.time.advance(5)
        written = [sent.body["status"]["conditions"][0] for sent in desk.api.sent]
        assert [(c["message"], c["status"], c["lastTransitionTime"]) for c in written] == [
            ("m", "True", "2026-01-01T00:00:00Z"),
            ("n", "True", "2026-01-01T00:00:00Z"),
            ("n", "False", "2026-01-01T00:00:10Z"),
        ]


async def test_late_word_about_a_deleted_pod_group_never_comes_last() -> None:
    """A PodGroup recreated under its name gets its own status, whatever is still to be said about
    the old one.
    """
    fault: list[Answer] = [Unreachable("No answer.")]
    async with at_work(lambda sent: fault[0]) as desk:
        desk.writer.put(group_status(uid="old", scheduled=9))
        await settle()
        fault[0] = {}
        desk.writer.put(group_status(uid="new", scheduled=1))
        await desk.time.advance(20)
        assert [sent.body["status"]["scheduled"] for sent in desk.api.sent] == [9, 1]


def test_merge_conditions() -> None:
    """Unchanged status keeps the old time, a changed one takes the given time or now."""
    old = [
        {"type": "A", "status": "True", "lastTransitionTime": "t0"},
        {"type": "B", "status": "True"},
    ]
    new = [
        {"type": "A", "status": "True", "lastTransitionTime": "t1"},
        {"type": "B", "status": "False", "lastTransitionTime": "t1"},
        {"type": "C", "status": "True"},
    ]
    assert [c["lastTransitionTime"] for c in merge_conditions(new, old, "now")] == [
        "t0",
        "t1",
        "now",
    ]


async def test_no_status_subresource() -> None:
    """Where the definition has no subresource the status goes into the object, and that is
    remembered for a while.
    """
    missing = ApiFault(404, "NotFound", 'podgroups "g" not found')
    async with at_work(lambda sent: missing if sent.path.endswith("/status") else {}) as desk:
        for number in range(3):
            desk.writer.put(group_status(uid=f"g{number}", scheduled=number))
            await desk.writer.drain(1)
        assert [sent.path.removeprefix(PATH) for sent in desk.api.sent] == ["/status", "", "", ""]
        await desk.time.advance(601)
        desk.writer.put(group_status(uid="g9", scheduled=9))
        await desk.writer.drain(1)
        assert [sent.path.removeprefix(PATH) for sent in desk.api.sent[4:]] == ["/status", ""]


async def test_deleted_pod_group_is_not_mistaken_for_a_missing_subresource() -> None:
    """The server answers both alike; only an object that exists proves that it has
    no subresource.
    """
    exists = False
    gone = ApiFault(404, "NotFound", 'podgroups "g" not found')
    async with at_work(lambda sent: {} if exists else gone) as desk:
        desk.writer.put(group_status(scheduled=1))
        assert await desk.writer.drain(1) == 0
        exists = True
        desk.writer.put(group_status(uid="g2", scheduled=1))
        await desk.writer.drain(1)
        assert [sent.path.removeprefix(PATH) for sent in desk.api.sent] == [
            "/status",
            "",
            "/status",
        ]


async def test_our_own_write_does_not_make_us_write_again() -> None:
    """Without a subresource each of our writes makes a new generation, which alone is no reason for
    another (E3).
    """
    missing = ApiFault(404, "NotFound", 'podgroups "g" not found')
    async with at_work(lambda sent: missing if sent.path.endswith("/status") else {}) as desk:
        for generation in range(1, 20):  # the state says of each generation that it has observed it
            desk.writer.put(
                group_status(
                    phase="Pending", conditions=[{**DEGRADED, "observedGeneration": generation}]
                )
            )
            await desk.time.advance(1)
        assert [sent.path.removeprefix(PATH) for sent in desk.api.sent] == ["/status", ""]
        assert "observedGeneration" not in desk.api.sent[1].body["status"]["conditions"][0]
        await desk.time.advance(700)
        desk.writer.put(
            group_status(phase="Pending", conditions=[{**DEGRADED, "observedGeneration": 99}])
        )
        await desk.time.advance(1)
        assert len(desk.api.sent) == 2
        desk.writer.put(
            group_status(phase="Running", conditions=[{**DEGRADED, "observedGeneration": 99}])
        )
        await desk.time.advance(1)
        assert len(desk.api.sent) == 4


async def test_long_messages_are_cut() -> None:
    """Conditions of pods and PodGroups are kept to a kilobyte, and say how much is left out."""
    async with at_work() as desk:
        desk.writer.put(word("x" * 3000))
        desk.writer.put(group_status(conditions=[{**DEGRADED, "message": "y" * 3000}]))
        await desk.writer.drain(1)
        assert {
            message[0]: (len(message.encode()), message.partition(" … ")[2])
            for message in desk.messages()
        } == {"x": (1024, "(2003 more characters)"), "y": (1024, "(2003 more characters)")}


async def test_a_pod_is_rewritten_ten_times_and_then_every_five_seconds() -> None:
    """A verdict that flips all the time is told again at the rate of its object, and the last one
    is told.
    """
    async with at_work() as desk:
        for number in range(95):
            desk.writer.put(word(f"verdict {number}"))
            await desk.time.advance(0.1)
        assert len(desk.messages()) == 11
        await desk.time.advance(10)
        assert len(desk.messages()) == 12
        assert desk.messages()[-1] == "verdict 94"
