"""Planted bugs that the histories of `tests/sim` find: of lost answers, paused leaders and watches
that end.
"""

from __future__ import annotations

import json
from typing import Any

from gangsched.kube.read.store import Store
from tests.mutants.mutant import bug, swapped
from tests.mutants.planted_requests import not_held

DIRECTED = "sim/test_directed.py"


@bug("B3", "kube.write.binding:encode_binding", DIRECTED)
def a_bind_takes_whatever_pod_has_that_name(encode: Any) -> Any:
    def by_name(bind: Any) -> bytes:
        sent = json.loads(encode(bind))
        del sent["metadata"]["uid"]
        return json.dumps(sent).encode()

    return by_name


@bug("B3", "kube.write.binder:_open_s", DIRECTED)
def a_bind_without_an_answer_is_refused(_: Any) -> Any:
    return lambda fault: 0.0


@bug("B2", "kube.write.binder:Binder.__init__", DIRECTED)
def nobody_asks_about_the_node_before_a_bind_is_sent(init: Any) -> Any:
    def unasked(self: Any, *given: Any, **more: Any) -> None:
        init(self, *given, **more)
        self._objection = lambda bind: ""

    return unasked


@bug("Q3", "kube.read.reflector:Reflector._must_relist", DIRECTED)
def a_watch_whose_past_is_forgotten_is_opened_there_again(_: Any) -> Any:
    return lambda self, fault: False


@bug("B3", "kube.lease.candidate:Candidate.free_s", DIRECTED)
def a_holder_that_is_silent_is_replaced_at_once_in_a_history(free_s: Any) -> Any:
    return not_held(free_s)


@bug("B3", "kube.http.connection_pool:ConnectionPool._exchange", DIRECTED)
def writes_leave_whatever_the_fence_says(exchange: Any) -> Any:
    return lambda self, request, fence, deadline_s: exchange(self, request, None, deadline_s)


@bug("B1", "core.permit:missing", DIRECTED)
def gangs_start_one_member_short(missing: Any) -> Any:
    return lambda gang, placed: max(0, missing(gang, placed) - 1)


@bug("I9", "state.parents:Parents._min_children", DIRECTED)
def one_child_of_a_tree_is_enough(_: Any) -> Any:
    return lambda self, parent, gangs: 1


@bug("Q3", "kube.read.store:Store.take_line", DIRECTED)
def a_watch_hears_of_no_deletions(take_line: Any) -> Any:
    def deaf(self: Any, raw: bytes) -> None:
        with swapped(Store, _remove=lambda store, key: None):
            take_line(self, raw)

    return deaf
