"""The binder: each row of semantics B3, and that no bind is ever left without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gangsched.kube.http.faults import ApiFault, Fenced, Malformed, Unreachable
from gangsched.kube.write.binder import (
    REQUEST_TIMEOUT_S,
    STORAGE_TIMEOUT_S,
    WEBHOOK_AWAY,
    Binder,
    BindFate,
    Undecided,
)
from gangsched.model.objects import PermitStamp
from gangsched.model.protocol import Bind, BindFailed, BindGone, Bound, Message
from tests.unit.kube.fakes import Answer, FakeRequests, FakeTime, Sent, running, settle

BIND = Bind("u1", "ns", "p", "n1")


def stored(uid: str = "u1", node: str = "", **more: Any) -> dict[str, Any]:
    """The pod as a read-back finds it."""
    meta = {"uid": uid} | (
        {"deletionTimestamp": "2026-01-01T00:00:00Z"} if more.get("deleting") else {}
    )
    spec: dict[str, Any] = {"nodeName": node} if node else {}
    return {
        "metadata": meta,
        "spec": spec | ({"schedulingGates": [{"name": "g"}]} if more.get("gated") else {}),
    }


def answers(post: Answer, *gets: Answer) -> Callable[[Sent], Answer]:
    """One answer to every POST, the others to GETs in turn."""
    queue = list(gets)
    return lambda sent: post if sent.method == "POST" else queue.pop(0)


class Desk:
    """A binder at work in fake time."""

    def __init__(self, answer: Callable[[Sent], Answer] | None, connections: int) -> None:
        self.time = FakeTime()
        self.api = FakeRequests(answer)
        self.outcomes: list[Message] = []
        self.warnings: list[str] = []
        self.observed: list[float] = []
        self.objections = [""]  # one answer for each time the binder asks, the last one for ever
        self.binder = Binder(
            self.api,
            self.outcomes.append,
            objection=lambda bind: (
                self.objections.pop(0) if len(self.objections) > 1 else self.objections[0]
            ),
            connections=connections,
            observe=self.observed.append,
            runtime=self.time.runtime(self.warnings.append),
        )


@asynccontextmanager
async def at_work(
    answer: Callable[[Sent], Answer] | None = None, connections: int = 4
) -> AsyncIterator[Desk]:
    desk = Desk(answer, connections)
    async with running(desk.binder.run()):
        yield desk


NOT_FOUND = ApiFault(404, "NotFound", 'pods "p" not found')
CONFLICT = ApiFault(409, "Conflict", "already assigned")
LOST = Unreachable("No answer.")
WEBHOOK_IS_AWAY = ApiFault(
    500, "InternalError", f'{WEBHOOK_AWAY}"binds.example.com": failed to call webhook: refused'
)


@pytest.mark.parametrize(
    ("post", "gets", "outcome"),
    [
        ({}, (), Bound("u1", "n1")),
        (NOT_FOUND, (NOT_FOUND,), BindGone("u1", "n1", 'pods "p" not found')),
        (NOT_FOUND, (stored(node="n1"),), Bound("u1", "n1")),
        (NOT_FOUND, (stored(),), BindFailed("u1", "n1", 'pods "p" not found')),
        (CONFLICT, (stored(node="n1"),), Bound("u1", "n1")),
        (CONFLICT, (stored(node="n2"),), BindGone("u1", "n1", "the pod is bound to n2")),
        (CONFLICT, (stored(uid="u2"),), BindGone("u1", "n1", "the pod was deleted and recreated")),
        (
            CONFLICT,
            (stored(uid="u2", node="n1"),),
            BindGone("u1", "n1", "the pod was deleted and recreated"),
        ),
        (CONFLICT, (stored(deleting=True),), BindGone("u1", "n1", "the pod is being deleted")),
        (CONFLICT, (stored(gated=True),), BindGone("u1", "n1", "the pod is gated")),
        (CONFLICT, (NOT_FOUND,), BindGone("u1", "n1", 'pods "p" not found')),
        (ApiFault(403, "Forbidden", "no"), (stored(),), BindFailed("u1", "n1", "no")),
        (ApiFault(422, "Invalid", "odd"), (stored(),), BindFailed("u1", "n1", "odd")),
        (ApiFault(429, "TooManyRequests", "busy"), (stored(),), BindFailed("u1", "n1", "busy")),
        (ApiFault(500, "InternalError", "oops"), (stored(node="n1"),), Bound("u1", "n1")),
        (WEBHOOK_IS_AWAY, (stored(),), BindFailed("u1", "n1", WEBHOOK_IS_AWAY.message)),
        (LOST, (stored(node="n1"),), Bound("u1", "n1")),
        (LOST, (NOT_FOUND,), BindGone("u1", "n1", 'pods "p" not found')),
    ],
)
async def test_outcomes(post: Answer, gets: tuple[Answer, ...], outcome: Message) -> None:
    """What the API server says decides the outcome; where that is not enough, the pod itself does
    (B3).
    """
    async with at_work(answers(post, *gets)) as desk:
        desk.binder.submit([BIND])
        await desk.binder.in_flight.idle.wait()
        assert desk.outcomes == [outcome]
        assert len(desk.api.of("GET")) == len(gets)


PAGE = "<html><body><h1>no backend</h1></body></html>"
UNDECIDED = [
    LOST,
    Malformed("The server's answer is not HTTP."),
    ApiFault(
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods/binding "p": etcdserver: request timed out',
    ),
    ApiFault(504, "Timeout", "request did not complete"),
    ApiFault(500, "ServerTimeout", "etcd is slow"),
    ApiFault(500, "InternalError", "oops"),
    ApiFault(403, "", PAGE, is_status=False),
    ApiFault(404, "", PAGE, is_status=False),
    ApiFault(502, "", PAGE, is_status=False),
    ApiFault(503, "ServiceUnavailable", "shutting down"),
]


@pytest.mark.parametrize("undecided", UNDECIDED)
@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        (({}, stored(node="n1")), Bound("u1", "n1")),
        ((CONFLICT, stored(node="n1")), Bound("u1", "n1")),
        ((CONFLICT, stored(uid="u2")), BindGone("u1", "n1", "the pod was deleted and recreated")),
        ((NOT_FOUND, NOT_FOUND), BindGone("u1", "n1", 'pods "p" not found')),
    ],
)
async def test_a_bind_that_may_be_carried_out_is_sent_again(
    undecided: ApiFault | Unreachable | Malformed, then: tuple[Answer, Answer], outcome: Message
) -> None:
    """An answer that does not prove refusal ends nothing: the room stays taken until another one is
    certain (B3).
    """
    post: list[Answer] = [undecided, stored()]
    async with at_work(lambda sent: post[sent.method == "GET"]) as desk:
        desk.binder.submit([BIND])
        await desk.time.advance(5)
        assert (desk.outcomes, desk.binder.fate("u1")) == ([], BindFate.PENDING)
        post[:] = then
        await desk.time.advance(10)
        assert desk.outcomes == [outcome]
        (warning,) = desk.warnings
        assert warning.startswith("It is unknown whether ns/p is bound, and the bind is sent again")
        assert {sent.body["target"]["name"] for sent in desk.api.of("POST")} == {"n1"}
        assert desk.binder.counts.sent_again == len(desk.api.of("POST")) - 1 > 0


@pytest.mark.parametrize(
    ("undecided", "certain_s"), [(UNDECIDED[2], 10.0), (UNDECIDED[8], 70.0), (LOST, 70.0)]
)
async def test_a_bind_to_a_node_that_is_gone_is_only_read(
    undecided: Answer, certain_s: float
) -> None:
    """It is never sent again, and keeps its room until a GET later than every time-out shows it
    unbound (B2, B3).
    """
    async with at_work(lambda sent: undecided if sent.method == "POST" else stored()) as desk:
        desk.objections = ["", "the node is full"]
        desk.binder.submit([BIND])
        await desk.time.advance(certain_s - 0.1)
        assert desk.outcomes == []
        await desk.time.advance(5.2)
        assert [type(outcome) for outcome in desk.outcomes] == [BindFailed]
        assert len(desk.api.of("POST")) == 1


async def test_a_late_bind_to_a_node_that_is_gone_is_seen() -> None:
    """What was carried out after all is bound, whatever has become of the node (B3)."""
    shown = stored()
    async with at_work(lambda sent: LOST if sent.method == "POST" else shown) as desk:
        desk.objections = ["", "the node is full"]
        desk.binder.submit([BIND])
        await desk.time.advance(30)
        shown = stored(node="n1")
        await desk.time.advance(5)
        assert desk.outcomes == [Bound("u1", "n1")]


async def test_a_bind_that_does_not_fit_any_more_is_not_sent() -> None:
    """The last look comes just before the first send, too (B2)."""
    async with at_work() as desk:
        desk.objections = ["the node is full"]
        desk.binder.submit([BIND])
        await desk.binder.in_flight.idle.wait()
        assert desk.outcomes == [BindFailed("u1", "n1", "the node is full")]
        assert desk.api.sent == []


async def test_a_refusal_of_the_second_send_says_nothing_of_the_first() -> None:
    """The bind that was sent first may still be carried out, so its room stays taken (B3)."""
    posts: list[Answer] = [LOST]
    forbidden = ApiFault(403, "Forbidden", "no")
    async with at_work(
        lambda sent: stored() if sent.method == "GET" else posts.pop() if posts else forbidden
    ) as desk:
        desk.binder.submit([BIND])
        await desk.time.advance(69)
        assert desk.outcomes == []
        await desk.time.advance(10)
        assert desk.outcomes == [BindFailed("u1", "n1", "no")]


async def test_answers_that_stay_undecided_end_in_the_end() -> None:
    """After ten answers that decide nothing the pod is only read, and then tried anew on a fresh
    plan (B3).
    """
    async with at_work(lambda sent: UNDECIDED[5] if sent.method == "POST" else stored()) as desk:
        desk.binder.submit([BIND])
        await desk.time.advance(100)
        assert desk.outcomes == [BindFailed("u1", "n1", "oops")]
        assert len(desk.api.of("POST")) == 10


async def test_request() -> None:
    """The Binding names pod, uid and node."""
    async with at_work() as desk:
        desk.binder.submit([BIND])
        await desk.binder.in_flight.idle.wait()
        (sent,) = desk.api.sent
        assert (sent.method, sent.path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
        assert sent.body == {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        }


async def test_unknown_fate_is_asked_until_known() -> None:
    """While the pod cannot be read, there is no outcome, so its room stays taken; then there is
    exactly one.
    """
    gets: tuple[Answer, ...] = (
        LOST,
        ApiFault(500, "", "oops"),
        Malformed("html"),
        {"metadata": 3},
        stored(node="n1"),
    )
    async with at_work(answers(LOST, *gets)) as desk:
        desk.binder.submit([BIND])
        await settle()
        assert (desk.outcomes, desk.binder.pending, desk.binder.fate("u1")) == (
            [],
            1,
            BindFate.PENDING,
        )
        assert "It is unknown whether ns/p is bound" in desk.warnings[0]
        await desk.time.advance(10)
        assert desk.outcomes == [Bound("u1", "n1")]
        assert desk.binder.counts.read_back_retries == 4
        assert len(desk.warnings) == 2  # of the bind and of the reads


async def test_connections_bound_what_is_in_flight() -> None:
    """No more requests than connections at a time, and all are answered in the end."""
    async with at_work(connections=3) as desk:
        desk.api.blocked = asyncio.Event()
        desk.binder.submit([Bind(f"u{n}", "ns", f"p{n}", "n") for n in range(10)])
        await settle()
        assert (len(desk.api.sent), desk.binder.pending) == (3, 10)
        desk.api.blocked.set()
        await desk.binder.in_flight.idle.wait()
        assert sorted(m.uid for m in desk.outcomes if isinstance(m, Bound)) == [
            f"u{n}" for n in range(10)
        ]
        assert desk.binder.counts.bound == 10
        assert len(desk.observed) == 10


async def test_fate() -> None:
    """Others can tell what became of a bind, to keep quiet about a pod that is bound."""
    fault: list[Answer] = [{}]
    async with at_work(lambda sent: fault[0] if sent.method == "POST" else stored()) as desk:
        desk.binder.submit([BIND])
        assert desk.binder.fate("u1") is BindFate.PENDING
        await desk.binder.in_flight.idle.wait()
        assert desk.binder.fate("u1") is BindFate.BOUND
        desk.binder.forget("u1")  # it is deleted
        assert desk.binder.fate("u1") is None
        fault[0] = ApiFault(403, "Forbidden", "oops")
        desk.binder.submit([Bind("u2", "ns", "q", "n")])
        await desk.binder.in_flight.idle.wait()
        assert desk.binder.fate("u2") is None


async def test_drain_waits_but_not_for_ever() -> None:
    """Draining gives the binds in flight their time and says how many are left."""
    async with at_work() as desk:
        desk.api.blocked = asyncio.Event()
        desk.binder.submit([BIND])
        drain = asyncio.create_task(desk.binder.drain(5.0))
        await desk.time.advance(4.9)
        assert not drain.done()
        await desk.time.advance(0.2)
        assert await drain == 1
        desk.api.blocked.set()
        assert await desk.binder.drain(5.0) == 0


async def test_bind_of_a_member_carries_the_stamp_of_its_permit() -> None:
    """B4: the stamp is written by the bind itself, so there is no moment in which only one of them
    is there.
    """
    async with at_work() as desk:
        desk.binder.submit(
            [Bind("u1", "ns", "p", "n1", permitted=PermitStamp(4, 2)), Bind("u2", "ns", "q", "n1")]
        )
        await settle()
    bodies = [sent.body for sent in desk.api.sent]
    assert bodies[0]["metadata"]["annotations"] == {"gangsched.dev/permitted": "4/2 u1"}
    assert "annotations" not in bodies[1]["metadata"]


async def test_undecided_binds_hold_up_nobody() -> None:
    """However many wait for certainty, the next bind is sent at once, and what waits for a pause
    may be written.
    """
    lost = [f"p{number}" for number in range(10)]

    def answer(sent: Sent) -> Answer:
        name = sent.path.split("/")[6]
        return LOST if name in lost else {} if sent.method == "POST" else stored(uid=f"u{name[1:]}")

    async with at_work(answer, connections=2) as desk:
        for number in range(10):
            desk.binder.submit([Bind(f"u{number}", "ns", f"p{number}", "n1")])
        await desk.time.advance(1)
        assert desk.binder.pending == 10
        assert desk.binder.in_flight.idle.is_set()
        desk.binder.submit([Bind("u", "ns", "p", "n1")])
        await settle()
        assert desk.outcomes == [Bound("u", "n1")]
        lost.clear()
        draining = asyncio.create_task(desk.binder.drain(60))
        await desk.time.advance(10)
        assert await draining == 0
        assert len(desk.outcomes) == 11


async def test_what_the_fence_held_back_has_failed_and_nobody_is_asked() -> None:
    """It was never sent: that is certain, and a thousand of them cost no request (B3)."""
    async with at_work(lambda sent: Fenced("not ours")) as desk:
        desk.binder.submit([BIND])
        await desk.binder.in_flight.idle.wait()
        assert desk.outcomes == [BindFailed("u1", "n1", "not ours")]
        assert desk.api.of("GET") == []
        assert desk.binder.undecided() == ()


async def test_the_fence_decides_nothing_about_a_bind_that_was_sent_before() -> None:
    """A lost answer stays open until it is certain, whoever leads meanwhile (B3)."""
    faults = [LOST]
    async with at_work(
        lambda sent: stored() if sent.method == "GET" else faults.pop() if faults else Fenced("no")
    ) as desk:
        desk.binder.submit([BIND])
        await desk.time.advance(REQUEST_TIMEOUT_S + STORAGE_TIMEOUT_S - 1)
        assert desk.outcomes == []
        (open_bind,) = desk.binder.undecided()
        assert open_bind == Undecided(BIND, 1000.0 + REQUEST_TIMEOUT_S + STORAGE_TIMEOUT_S)
        await desk.time.advance(20)
        assert [type(each) for each in desk.outcomes] == [BindFailed]


async def test_undecided_binds_go_to_the_next_binder_which_only_reads() -> None:
    """Sent and not answered, or answered by nothing certain: what is queued and was never sent is
    none of them (B3).
    """
    sent_at: list[str] = []

    def answer(sent: Sent) -> Answer:
        sent_at.append(sent.path)
        return LOST if "/binding" in sent.path else Unreachable("No answer.")

    async with at_work(answer, connections=1) as desk:
        desk.api.blocked = asyncio.Event()
        desk.binder.submit([BIND, Bind("u2", "ns", "q", "n1")])
        await settle()
    undecided = desk.binder.undecided()
    assert undecided == (Undecided(BIND, 1000.0 + REQUEST_TIMEOUT_S + STORAGE_TIMEOUT_S),)
    async with at_work(lambda sent: stored(node="n1")) as heir:
        heir.binder.adopt(undecided)
        assert heir.binder.fate("u1") is BindFate.PENDING
        await heir.binder.in_flight.idle.wait()
        assert heir.outcomes == [Bound("u1", "n1")]
        assert heir.api.of("POST") == []
    async with at_work(lambda sent: stored()) as heir:
        heir.binder.adopt(undecided)
        await heir.time.advance(REQUEST_TIMEOUT_S + STORAGE_TIMEOUT_S - 1)
        assert heir.outcomes == []
        await heir.time.advance(20)
        assert [type(each) for each in heir.outcomes] == [BindFailed]
        assert heir.api.of("POST") == []
