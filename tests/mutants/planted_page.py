"""Planted bugs of the page: of who may ask, of what is told, and of what changes."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import bug

PAGE = "../packages/kubectl-gangsched/tests/page"
GUARD, FEED = f"{PAGE}/live/test_guard.py", f"{PAGE}/live/test_feed.py"
CHANGES = f"{PAGE}/test_changes.py"
SIMULATED = f"{PAGE}/test_simulated.py"
LIVE = "kubectl_gangsched.page.live"
CLAIMED = "kubectl_gangsched.claimed_devices"
CLAIMED_TESTS = "../packages/kubectl-gangsched/tests/test_claimed_devices.py"


@bug("0129", f"{LIVE}.guard:Guard.check_origin", GUARD)
def another_site_may_ask(_: Any) -> Any:
    return lambda self, headers, *, is_page: None


@bug("0129", f"{LIVE}.guard:Guard.exchange", GUARD)
def a_link_is_good_again(exchange: Any) -> Any:
    def again(self: Any, authorization: str) -> str:
        self._key = ""
        return str(exchange(self, authorization))

    return again


@bug("0129", f"{LIVE}.guard:Guard.check_key", GUARD)
def anybody_with_a_key_may_ask(_: Any) -> Any:
    return lambda self, authorization: None


@bug("0129", f"{LIVE}.guard:BODY_BYTES", GUARD)
def bodies_may_be_large(_: Any) -> Any:
    return 1 << 30


@bug("0129", f"{LIVE}.watch:Watch.check_rights", FEED)
def a_right_is_asked_for_once(_: Any) -> Any:
    return lambda self: None


@bug("0129", f"{LIVE}.sources:Pods.closed", FEED)
def what_may_not_be_read_any_more_stays(_: Any) -> Any:
    return lambda self: None


@bug("0129", f"{LIVE}.feed:Feed.behind", FEED)
def nobody_says_that_the_page_is_old(_: Any) -> Any:
    return lambda self: (0, "")


@bug("0129", f"{LIVE}.places:kept_nodes", FEED)
def each_event_takes_the_reserved_nodes_away(_: Any) -> Any:
    return lambda before, after: after


@bug("0129", "kubectl_gangsched.page.changes:_queue_change", CHANGES)
def the_queue_never_changes(_: Any) -> Any:
    return lambda before, after: None


@bug("0129", "kubectl_gangsched.page.simulated:_Course._tell", SIMULATED)
def promises_are_shown_before_they_are_told(_: Any) -> Any:
    return lambda self, at_s: None


@bug("0129", f"{LIVE}.connections:Connections.admit", f"{PAGE}/live/test_connections.py")
def strangers_stay(_: Any) -> Any:
    return lambda self, connection: None


@bug("0129", f"{LIVE}.connections:BoundedReader.begin", f"{PAGE}/live/test_connections.py")
def a_request_may_take_forever(begin: Any) -> Any:
    return lambda self, within_s, most: begin(self, 1_000.0, most)


@bug("0129", f"{LIVE}.feed:Feed._keep", FEED)
def changes_are_kept_whatever_they_weigh(_: Any) -> Any:
    return lambda self, most_bytes: None


@bug("0129", f"{LIVE}.places:is_of_standby", FEED)
def a_standby_is_taken_for_the_leader(_: Any) -> Any:
    return lambda answer: False


@bug("0129", f"{CLAIMED}:devices_of", CLAIMED_TESTS)
def claims_have_no_devices(_: Any) -> Any:
    return lambda claim: iter(())
