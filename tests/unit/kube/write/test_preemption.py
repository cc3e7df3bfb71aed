"""The writes of a preemption: their order, each answer of semantics V14, and what a cancellation
stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gangsched.kube.http.faults import ApiFault, Cause, Fenced, Unreachable
from gangsched.kube.http.permissions import PATH as REVIEWS
from gangsched.kube.write.preemption import MARK_AGAIN_AFTER_S, MARK_AGAIN_WAITS
from gangsched.model.protocol import (
    CancelPreemption,
    Evict,
    Evicted,
    EvictionDelayed,
    EvictionResult,
    NominatedMember,
    PreemptionPrepared,
    PreparePreemption,
    WriteUndecided,
)
from tests.unit.kube.fakes import Answer, Sent, settle
from tests.unit.kube.write.preempting import EVICT, MEMBERS, PREPARE, Desk, at_work

NOT_FOUND = ApiFault(404, "NotFound", 'pods "low-0" not found')
CONFLICT = ApiFault(409, "Conflict", "uid in precondition: v0, UID in object meta: v9")
LOST = Unreachable("No answer.")
NEEDS = "The disruption budget w needs 3 healthy pods and has 3 currently"
BUDGET = ApiFault(
    429, "TooManyRequests", "Cannot evict pod.", causes=(Cause("DisruptionBudget", NEEDS),)
)
BUSY = ApiFault(429, "TooManyRequests", "busy")
TWO_BUDGETS = ApiFault(500, "InternalError", "This pod has more than one PodDisruptionBudget")
IMMUTABLE = ApiFault(
    422, "Invalid", "uid", causes=(Cause("FieldValueInvalid", "immutable", "metadata.uid"),)
)
FORBIDDEN = ApiFault(403, "Forbidden", 'cannot create resource "pods/eviction"')
ALIVE = {"metadata": {"uid": "v0"}}
TERMINATING = {"metadata": {"uid": "v0", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
RECREATED = {"metadata": {"uid": "v9"}}


def evictions(
    *posts: Answer, get: Answer = ALIVE, allowed: bool = True
) -> Callable[[Sent], Answer]:
    """Answers to evictions in turn, the last one for ever; pods read back are `get`."""
    queue = list(posts)

    def answer(sent: Sent) -> Answer:
        if sent.path == REVIEWS:
            return {"status": {"allowed": allowed}}
        if sent.path.endswith("/eviction"):
            return queue.pop(0) if len(queue) > 1 else queue[0]
        return get if sent.method == "GET" else {}

    return answer


def kinds(desk: Desk) -> list[str]:
    """What was written, in order: the pod and what about it."""
    names = {"nominatedNodeName": "nominate", "conditions": "mark"}
    return [
        f"{'evict' if sent.method == 'POST' else names[next(iter(sent.body['status']))]}"
        f" {sent.path.split('/')[6]}"
        for sent in desk.api.sent
        if sent.method != "GET"
    ]


async def test_members_are_nominated_before_a_victim_is_marked() -> None:
    """V13: every write of (1) is answered before the first of (2); the uid is a precondition, the
    time the present.
    """
    async with at_work() as desk:
        desk.api.blocked = asyncio.Event()
        desk.writer.order(PREPARE)
        await settle()
        assert sorted(kinds(desk)) == ["nominate high-0", "nominate high-1"]
        desk.api.blocked.set()
        await settle()
        assert sorted(kinds(desk)[2:]) == ["mark low-0", "mark low-1"]
        assert desk.told == [PreemptionPrepared("1")]
        nominate, mark = desk.api.sent[0], desk.api.sent[2]
        assert nominate.path == "/api/v1/namespaces/ns/pods/high-0/status"
        assert nominate.body == {"metadata": {"uid": "m0"}, "status": {"nominatedNodeName": "n0"}}
        assert nominate.content_type == "application/strategic-merge-patch+json"
        (condition,) = mark.body["status"]["conditions"]
        assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
        assert mark.body["metadata"] == {"uid": "v0"}


@pytest.mark.parametrize(
    "fault", [NOT_FOUND, CONFLICT, FORBIDDEN, Fenced("not ours"), ApiFault(422, "Invalid", "no")]
)
async def test_nobody_is_marked_when_a_member_cannot_be_nominated(fault: Answer) -> None:
    """V13: a failure in (1) ends the nomination before anybody is harmed, and is no reason
    to wait.
    """
    async with at_work(lambda sent: fault if "high-1" in sent.path else {}) as desk:
        desk.writer.order(PREPARE)
        await settle()
        assert sorted(kinds(desk)) == ["nominate high-0", "nominate high-1"]
        (told,) = desk.told
        assert isinstance(told, PreemptionPrepared)
        assert "high-1" in told.failed


async def test_a_server_that_is_away_for_a_moment_is_asked_again() -> None:
    """V13: a passing fault delays a preparation, for 10 s at the most."""
    passing = [LOST, BUSY]
    async with at_work(
        lambda sent: passing.pop() if passing and "high-1" in sent.path else {}
    ) as desk:
        desk.writer.order(PREPARE)
        await desk.time.advance(2.0)
        # Only of what was lost it is unknown whether it is written late, over later nominations.
        assert desk.told == [WriteUndecided("m1"), PreemptionPrepared("1")]
    async with at_work(lambda sent: LOST if "high-1" in sent.path else {}) as desk:
        desk.writer.order(PREPARE)
        await desk.time.advance(11.0)
        *undecided, told = desk.told
        assert {*undecided} == {WriteUndecided("m1")}
        assert isinstance(told, PreemptionPrepared)
        assert told.failed == "pod ns/high-1 cannot be written: No answer."


@pytest.mark.parametrize(
    ("fault", "failed"),
    [(NOT_FOUND, False), (CONFLICT, False), (IMMUTABLE, False), (FORBIDDEN, True)],
)
async def test_a_victim_that_is_gone_is_no_failure(fault: Answer, failed: bool) -> None:
    """V13: who is gone need not be told; who cannot be told is not evicted: after a crash nobody
    would know them.
    """
    async with at_work(lambda sent: fault if "low-1" in sent.path else {}) as desk:
        desk.writer.order(PREPARE)
        await settle()
        (told,) = desk.told
        assert isinstance(told, PreemptionPrepared)
        assert bool(told.failed) is failed


@pytest.mark.parametrize(
    ("post", "get", "result"),
    [
        ({}, ALIVE, EvictionResult.DONE),
        (NOT_FOUND, ALIVE, EvictionResult.GONE),
        (CONFLICT, RECREATED, EvictionResult.GONE),
        (CONFLICT, NOT_FOUND, EvictionResult.GONE),
        (TWO_BUDGETS, TERMINATING, EvictionResult.DONE),
        (LOST, TERMINATING, EvictionResult.DONE),
        (LOST, RECREATED, EvictionResult.GONE),
        (ApiFault(422, "Invalid", "no"), ALIVE, EvictionResult.FAILED),
        (Fenced("not ours"), ALIVE, EvictionResult.FAILED),
    ],
)
async def test_answers_that_end_an_eviction(
    post: Answer, get: Answer, result: EvictionResult
) -> None:
    """V14: each is told at once, after one eviction and, where the answer leaves it open, one look
    at the pod.
    """
    async with at_work(evictions(post, get=get)) as desk:
        desk.writer.order(EVICT)
        await settle()
        (told,) = desk.told
        assert isinstance(told, Evicted)
        assert (told.id, told.uid, told.result) == ("1", "v0", result)
        assert len(desk.evictions()) == 1


async def test_the_condition_is_written_once_more_after_the_eviction() -> None:
    """V13 (5): the eviction overwrites it. The state is told at once; a pod that is gone after a
    second has none.
    """
    async with at_work() as desk:
        desk.writer.order(EVICT)
        await settle()
        assert desk.told == [Evicted("1", "v0", EvictionResult.DONE)]
        await desk.time.advance(MARK_AGAIN_AFTER_S)
        assert kinds(desk) == ["evict low-0", "mark low-0"]
    async with at_work() as desk:
        desk.writer.order(EVICT)
        await settle()
        desk.gone.add("v0")
        await desk.time.advance(MARK_AGAIN_AFTER_S)
        assert kinds(desk) == ["evict low-0"]
        assert desk.writer.counts.marked_again == 0
    async with at_work(lambda sent: NOT_FOUND if sent.method == "PATCH" else {}) as desk:
        desk.writer.order(EVICT)
        await settle()
        await desk.time.advance(MARK_AGAIN_AFTER_S)
        assert desk.told == [Evicted("1", "v0", EvictionResult.DONE)]


async def test_the_condition_waits_for_the_end_of_a_wave() -> None:
    """While other evictions are in flight, victims take longer to go; if they are still there, it
    is written then.
    """
    for waits, gone in ((1, False), (MARK_AGAIN_WAITS, False), (2, True)):
        async with at_work() as desk:
            desk.writer.order(EVICT)
            await settle()
            desk.writer.in_flight.begin()
            for _ in range(waits - 1):
                await desk.time.advance(MARK_AGAIN_AFTER_S)
                assert kinds(desk) == ["evict low-0"]
            if gone:
                desk.gone.add("v0")
            elif waits < MARK_AGAIN_WAITS:
                desk.writer.in_flight.end()
            await desk.time.advance(MARK_AGAIN_AFTER_S)
            assert kinds(desk) == ["evict low-0", *(() if gone else ("mark low-0",))]


async def test_the_condition_of_a_pod_is_written_at_once_when_the_nomination_is_over() -> None:
    """V13 (5): a cancellation and a shutdown wait for nothing but the write."""
    async with at_work() as desk:
        desk.writer.order(EVICT)
        await settle()
        desk.writer.order(CancelPreemption("1", ()))
        await settle()
        assert kinds(desk) == ["evict low-0", "mark low-0"]


async def test_other_writes_wait_for_those_of_a_preemption_in_flight() -> None:
    """From the first nomination to the last answer, also while requests wait for a connection, and
    if one is lost.
    """
    async with at_work(evictions(LOST, {})) as desk:
        desk.api.blocked = asyncio.Event()
        desk.writer.order(PREPARE)
        await settle()
        assert not desk.writer.in_flight.idle.is_set()
        desk.api.blocked.set()
        await settle()
        assert desk.told == [PreemptionPrepared("1", "")]
        assert desk.writer.in_flight.idle.is_set()
        desk.writer.order(EVICT)
        await settle()
        assert desk.writer.in_flight.idle.is_set()  # between two tries
        assert desk.told[1:] == []


async def test_a_budget_delays_an_eviction_and_is_told_once() -> None:
    """V14: 429 is tried again after 1 to 10 s, and done when it is allowed."""
    async with at_work(evictions(*[BUDGET] * 6, {})) as desk:
        desk.writer.order(EVICT)
        await desk.time.advance(35.0)
        assert desk.told == [
            EvictionDelayed("1", "v0", NEEDS),
            Evicted("1", "v0", EvictionResult.DONE),
        ]
        assert len(desk.evictions()) == 7
        assert desk.writer.counts.delayed == 1
        assert desk.writer.counts.sent_again == 6


@pytest.mark.parametrize(
    ("post", "delayed", "result"),
    [
        (BUDGET, NEEDS, EvictionResult.BLOCKED),
        (TWO_BUDGETS, "more than one PodDisruptionBudget", EvictionResult.BLOCKED),
        (BUSY, "", EvictionResult.FAILED),
        (LOST, "", EvictionResult.FAILED),
    ],
)
async def test_an_eviction_ends_at_its_deadline(
    post: Answer, delayed: str, result: EvictionResult
) -> None:
    """V14: within the deadline of the nomination, never later, and never without a word."""
    async with at_work(evictions(post)) as desk:
        desk.writer.order(EVICT)
        await desk.time.advance(99.0)
        assert [type(told) for told in desk.told] == ([EvictionDelayed] if delayed else [])
        assert all(
            delayed in told.message for told in desk.told if isinstance(told, EvictionDelayed)
        )
        await desk.time.advance(1.0)
        last = desk.told[-1]
        assert isinstance(last, Evicted)
        assert last.result is result
        assert 10 < len(desk.evictions()) < 20
        await desk.time.advance(100.0)
        assert desk.told[-1] is last


async def test_without_the_right_nothing_more_is_sent() -> None:
    """V14: 403 turns preemption off until a restart, with one line in the log."""
    async with at_work(evictions(FORBIDDEN, allowed=False)) as desk:
        desk.writer.order(EVICT)
        await settle()
        desk.writer.order(Evict("1", "v1", "ns", "low-1", 1_100.0))
        await settle()
        answers = [told for told in desk.told if isinstance(told, Evicted)]
        assert [told.result for told in answers] == [EvictionResult.FORBIDDEN] * 2
        # names no pod (V22)
        assert {told.message for told in answers} == {"gangsched may not create pods/eviction"}
        assert len(desk.evictions()) == 1
        assert len(desk.warnings) == 1
        assert desk.warnings[0].startswith("Preemption is off until a restart: cannot create")


async def test_a_webhook_that_denies_one_pod_does_not_turn_preemption_off() -> None:
    """V14, attack: admission answers 403 as well; who may evict waits for this pod and evicts
    others.
    """
    denied = ApiFault(403, "Forbidden", "admission webhook denied the request")

    def answer(sent: Sent) -> Answer:
        if sent.path == REVIEWS:
            return {"status": {"allowed": True}}
        return denied if sent.method == "POST" and "low-0" in sent.path else {}

    async with at_work(answer) as desk:
        desk.writer.order(EVICT)
        await settle()
        desk.writer.order(Evict("1", "v1", "ns", "low-1", 1_100.0))
        await desk.time.advance(100.0)
        assert desk.told == [
            EvictionDelayed("1", "v0", "admission webhook denied the request"),
            Evicted("1", "v1", EvictionResult.DONE),
            Evicted("1", "v0", EvictionResult.BLOCKED, "admission webhook denied the request"),
        ]
        assert desk.warnings == []


async def test_what_is_not_wanted_any_more_is_not_sent() -> None:
    """V13: the fence is asked before each time an eviction is sent, also again."""
    async with at_work(evictions(BUDGET)) as desk:
        desk.writer.order(EVICT)
        await settle()
        desk.wanted = False
        await desk.time.advance(5.0)
        assert len(desk.evictions()) == 1
        last = desk.told[-1]
        assert isinstance(last, Evicted)
        assert last.result is EvictionResult.WITHDRAWN


@pytest.mark.parametrize(
    ("get", "result"),
    [
        (ALIVE, EvictionResult.WITHDRAWN),
        (TERMINATING, EvictionResult.DONE),
        (NOT_FOUND, EvictionResult.GONE),
        (LOST, EvictionResult.FAILED),
    ],
)
async def test_an_eviction_whose_answer_was_lost_is_withdrawn_once_its_pod_was_read(
    get: Answer, result: EvictionResult
) -> None:
    """V12: it may have been carried out, and then the rest of the gang has to go as well."""
    pods: list[Answer] = [LOST, get]

    def answer(sent: Sent) -> Answer:
        if sent.method == "GET":
            return pods.pop(0) if len(pods) > 1 else pods[0]

        return LOST

    async with at_work(answer) as desk:
        desk.writer.order(EVICT)
        await settle()
        desk.wanted = False
        await desk.time.advance(200.0)
        assert len(desk.evictions()) == 1
        told = [message for message in desk.told if isinstance(message, Evicted)]
        assert [message.result for message in told] == [result]


async def test_a_cancelled_preemption_sends_nothing_more_and_takes_nominations_back() -> None:
    """V12: evictions not yet sent are not sent, nobody is answered, and nominatedNodeName is
    cleared.
    """
    async with at_work(evictions(BUDGET)) as desk:
        desk.writer.order(EVICT)
        await settle()
        desk.writer.order(CancelPreemption("1", MEMBERS))
        await desk.time.advance(100.0)
        assert len(desk.evictions()) == 1
        assert [type(told) for told in desk.told] == [EvictionDelayed]
        cleared = desk.api.of("PATCH")
        assert [sent.body["status"] for sent in cleared] == [{"nominatedNodeName": None}] * 2


async def test_writes_about_a_member_keep_their_order() -> None:
    """V12, attack: the answer to a nomination is late; it is taken back after it, and the next one
    comes after that.
    """
    async with at_work() as desk:
        desk.api.blocked = asyncio.Event()
        desk.writer.order(PREPARE)
        await settle()
        desk.writer.order(CancelPreemption("1", MEMBERS))
        desk.writer.order(
            PreparePreemption("2", (NominatedMember("m0", "ns", "high-0", "n7"),), ())
        )
        await settle()
        assert len(desk.api.sent) == 2
        desk.api.blocked.set()
        await settle()
        of_first = [
            sent.body["status"]["nominatedNodeName"]
            for sent in desk.api.sent
            if "high-0" in sent.path
        ]
        assert of_first == ["n0", None, "n7"]
        assert not any("low" in sent.path for sent in desk.api.sent)
        assert desk.told == [PreemptionPrepared("2")]


async def test_hundreds_of_evictions_leave_connections_to_others() -> None:
    """Attack: 500 victims at once; no more than 16 requests are in flight, and all are told."""
    in_flight: list[int] = []
    async with at_work() as desk:
        desk.api.blocked = asyncio.Event()
        for number in range(500):
            desk.writer.order(Evict("1", f"v{number}", "ns", f"low-{number}", 1_100.0))
        await settle()
        in_flight.append(len(desk.api.sent))
        desk.api.blocked.set()
        while len(desk.told) < 500:
            await settle()
        assert in_flight == [16]
        assert desk.writer.counts.evicted == 500


async def test_shutting_down_waits_for_answers_and_tries_nothing_again() -> None:
    """V24: what is under way is answered; what waits for a budget is left to the next process."""
    async with at_work(evictions(BUDGET, {})) as desk:
        desk.writer.order(EVICT)
        await settle()
        draining = asyncio.create_task(desk.writer.drain(5.0))
        await settle()
        assert await draining == 0
        assert len(desk.evictions()) == 1


async def test_a_late_order_finds_a_preemption_that_was_cancelled_before() -> None:
    """Ids are not reused, so nothing of a cancelled one is kept."""
    async with at_work() as desk:
        desk.writer.order(CancelPreemption("1", MEMBERS))
        await settle()
        desk.writer.order(PreparePreemption("2", MEMBERS, ()))
        await settle()
        assert desk.told == [PreemptionPrepared("2")]
        assert vars(desk.writer)["_under_way"] == {}
        assert vars(desk.writer)["_turns"] == {}
