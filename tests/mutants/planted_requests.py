"""Planted bugs at the API server: the Lease and its fence, watches, and binds whose answers are not
certain.
"""

from __future__ import annotations

import math
from typing import Any

import aiohttp

from tests.mutants.mutant import bug, swapped

LEASE, FENCE, BINDER = (
    "unit/kube/lease/test_candidate.py",
    "unit/kube/http/test_fence.py",
    "unit/kube/write/test_binder.py",
)
REFLECTOR = "unit/kube/read/test_reflector.py"
CANDIDATE = "kube.lease.candidate:Candidate"


def not_held(free_s: Any) -> Any:
    """When a Lease may be taken, though its holder may only have paused."""

    def at_once(self: Any) -> Any:
        record = self._record
        return (
            free_s(self)
            if record is None or record.is_free or self._is_ours(record)
            else self._changed_s
        )

    return at_once


@bug("B3", f"{CANDIDATE}.stored", LEASE)
def a_renewal_counts_from_its_answer(stored: Any) -> Any:
    return lambda self, record, sent_s, now_s: stored(self, record, now_s, now_s)


@bug("B3", "kube.lease.candidate:Timing.fence_s", LEASE)
def the_fence_is_open_for_as_long_as_others_wait_and_longer(_: Any) -> Any:
    return property(lambda timing: timing.duration_s + timing.margin_s)


@bug("B3", f"{CANDIDATE}.saw", LEASE)
def a_deleted_lease_counts_as_a_released_one(saw: Any) -> Any:
    def forgetful(self: Any, record: Any, now_s: float) -> None:
        saw(self, record, now_s)
        self._record = record

    return forgetful


@bug("B3", f"{CANDIDATE}.saw", LEASE)
def who_creates_the_lease_leads_at_once(saw: Any) -> Any:
    def hasty(self: Any, record: Any, now_s: float) -> None:
        saw(self, record, now_s)
        self._leads_from_s = min(self._leads_from_s, now_s)

    return hasty


@bug("B3", f"{CANDIDATE}.resigns", LEASE)
def a_lease_that_is_not_led_yet_is_released(resigns: Any) -> Any:
    def at_once(self: Any, *given: Any) -> Any:
        self._leads_from_s = -math.inf
        return resigns(self, *given)

    return at_once


@bug("B3", f"{CANDIDATE}._is_ours", LEASE)
def a_record_with_our_identity_is_ours(_: Any) -> Any:
    return lambda self, record: record.holder == self.identity


@bug("B3", f"{CANDIDATE}.free_s", LEASE)
def a_holder_that_is_silent_is_replaced_at_once(free_s: Any) -> Any:
    return not_held(free_s)


@bug("B3", "kube.http.connection_pool:ConnectionPool._exchange", FENCE)
def the_fence_is_not_asked_when_a_connection_has_opened(exchange: Any) -> Any:
    return lambda self, request, fence, deadline_s: exchange(self, request, None, deadline_s)


@bug("B3", "kube.http.client:_fencing", FENCE)
def the_fence_has_no_say_in_the_other_way_of_sending(_: Any) -> Any:
    return aiohttp.TraceConfig


@bug("B3", "kube.lease.leadership:Leadership._is_ready", "unit/kube/lease/test_leadership.py")
def a_term_begins_before_the_past_is_known(is_ready: Any) -> Any:
    async def hasty(self: Any, holding: Any) -> bool:
        await is_ready(self, holding)
        return not holding.done()

    return hasty


class Seen:
    """Pods as a store shows them, of which none is looked for."""

    def __init__(self, pods: Any) -> None:
        self._pods = pods

    def items(self) -> tuple[()]:
        return ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pods, name)


@bug("B3", "kube.read.catch_up:catch_up", "unit/kube/read/test_catch_up.py")
def a_bind_that_the_watch_has_not_shown_is_planned_over(catch_up: Any) -> Any:
    return lambda client, pods, *given, **more: catch_up(client, Seen(pods), *given, **more)


@bug("I7", "kube.read.reflector:Reflector._watch", REFLECTOR)
def a_watch_does_not_select(watch: Any) -> Any:
    async def everything(self: Any) -> Any:
        with swapped(self, _selection=[]):
            return await watch(self)

    return everything


@bug("decision 2", "kube.read.reflector:Reflector._pause", REFLECTOR)
def a_watch_that_was_of_use_and_broke_is_opened_again_at_once(pause: Any) -> Any:
    async def at_once(self: Any, *given: Any, **more: Any) -> None:
        self._tried_s = -math.inf
        await pause(self, *given, **more)

    return at_once


@bug("decision 2", "kube.http.backoff:RequestPace.turn", REFLECTOR)
def a_watch_that_ends_again_and_again_is_resumed_in_a_storm(_: Any) -> Any:
    async def at_once(self: Any, kind: str) -> None:
        await self._sleep(0)

    return at_once


@bug(
    "decision 57",
    "kube.read.podgroup_store:PodGroupStore.replace",
    "unit/kube/read/test_podgroup_store.py",
)
def podgroups_of_a_watch_behind_the_last_list_count(replace: Any) -> Any:
    def forgetful(self: Any, *given: Any) -> None:
        replace(self, *given)
        self._as_of = -1

    return forgetful


@bug("decision 2", "kube.http.backoff:RequestPace.__init__", REFLECTOR)
def a_watch_that_an_overloaded_api_server_ended_is_resumed_a_second_later(init: Any) -> Any:
    return lambda self, every_s, *, at_once=1, now, sleep: init(self, every_s, now=now, sleep=sleep)


@bug("B3", "kube.write.binder:Binder.undecided", BINDER)
def binds_that_were_sent_are_forgotten_with_the_lease(undecided: Any) -> Any:
    return lambda self: tuple(
        each for each in undecided(self) if self._pending[each.bind.uid].fault is not None
    )


@bug("B3", "kube.write.binder:REFUSALS", BINDER)
def a_conflict_counts_as_a_proof_of_refusal(refusals: Any) -> Any:
    return refusals | {"Conflict"}


@bug("B2", "kube.write.binder:Binder._send", BINDER)
def a_bind_is_sent_again_to_a_node_that_is_gone(send: Any) -> Any:
    async def again(self: Any, attempt: Any) -> Any:
        objection = self._objection
        with swapped(
            self, _objection=lambda bind: "" if attempt.fault is not None else objection(bind)
        ):
            return await send(self, attempt)

    return again


@bug("B3", "kube.write.binder:Binder._send", BINDER)
def the_room_of_a_lost_bind_is_given_up_at_the_first_refusal(send: Any) -> Any:
    async def forgetful(self: Any, attempt: Any) -> Any:
        attempt.certain_s = 0.0
        return await send(self, attempt)

    return forgetful
