"""The rows of the fault matrix: what goes wrong while a gang is being scheduled.

Invariant: a row is a name and a function of the site; it returns rules that all must strike, and
what is done once the gang has been created (bring back what was killed). A row never waits for
luck.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat

from tests.faults.answers import etcd_timeout, expired_token, gateway_page, refusal
from tests.faults.bodies import End, Repeated, SmallPages, Trickle, Watch
from tests.faults.deaths import Hurt, Point, at_call
from tests.faults.requests import ApiRequest
from tests.faults.rules import BlackHole, Delay, Drop, Fault, Held, Rule
from tests.faults.site import Site

KILLED_WITHIN_S = 60.0
STOPPED_S = 3.0


def nothing(_: Site) -> None:
    """Nothing more is to be done."""


@dataclass(frozen=True)
class Met:
    """What a gang meets. `reopens`: watches are cut first, so that the next ones meet the rules."""

    rules: list[Rule]
    then: Callable[[Site], None] = nothing
    reopens: bool = False


Row = Callable[[Site], Met]


def is_other_write(asked: ApiRequest) -> bool:
    """A write that is no bind."""
    return asked.is_write and asked.subresource != "binding"


def some(fault: Fault, times: int = 2) -> Iterator[Fault | None]:
    """For the second request and the next ones, `times` in all."""
    return iter((None, *repeat(fault, times)))


def binds(fault: Fault, times: int = 2) -> Row:
    """The second bind and the next one."""
    return lambda _: Met([Rule(some(fault, times), subresource="binding")])


def others(fault: Fault, times: int = 3) -> Row:
    """The first writes that are no binds: conditions, statuses, Events, nominations, evictions."""
    return lambda _: Met([Rule(repeat(fault, times), where=is_other_write)])


def watch(resource: str, fault: Fault, streams: int = 1) -> Row:
    """The next watch of a resource; PodGroups have one in each API group."""
    return lambda _: Met(
        [Rule(repeat(fault, streams), verb="watch", resource=resource)], reopens=True
    )


def listed_again(resource: str, *faults: Fault) -> Row:
    """A watch that says 410, and the list that follows it."""

    def rules(_: Site) -> Met:
        expired = Rule([Watch(End.EXPIRED)], verb="watch", resource=resource)
        return Met([expired, Rule(faults, verb="list", resource=resource)], reopens=True)

    return rules


def expired_continue(_: Site) -> Met:
    """A list in pages of one object, whose second page says that its token has expired; there are
    pods by then.
    """
    expired = Rule([Watch(End.EXPIRED, 4)], verb="watch", resource="pods")
    pages = Rule([SmallPages()], verb="list", resource="pods", next_page=False)
    return Met(
        [expired, pages, Rule([expired_token()], verb="list", resource="pods", next_page=True)],
        reopens=True,
    )


def killed(point: Point) -> Row:
    """kill -9 of the scheduler at its second bind."""

    def rules(site: Site) -> Met:
        hurt = Hurt(lambda: site.daemon.pid, point)

        def then(site: Site) -> None:
            assert hurt.done.wait(KILLED_WITHIN_S), "it has not been killed"
            site.proxy.rules.clear()
            site.start()

        return Met(at_call(2, hurt, lambda asked: asked.subresource == "binding"), then)

    return rules


def stopped(site: Site) -> Met:
    """SIGSTOP at the second bind, for longer than its connections have patience."""
    hurt = Hurt(lambda: site.daemon.pid, Point.APPLIED, signal.SIGSTOP)

    def then(site: Site) -> None:
        assert hurt.done.wait(KILLED_WITHIN_S), "it has not been stopped"
        time.sleep(STOPPED_S)  # this is the fault
        os.kill(site.daemon.pid, signal.SIGCONT)

    return Met([Rule(some(hurt, 1), subresource="binding")], then)


def component(name: str) -> Row:
    """kill -9 of etcd or the API server at the second bind, and its return."""

    def rules(site: Site) -> Met:
        hurt = Hurt(lambda: site.plane.pids[name], Point.APPLIED)

        def then(site: Site) -> None:
            assert hurt.done.wait(KILLED_WITHIN_S), "it has not been killed"
            site.restart_component(name)

        return Met([Rule(some(hurt, 1), subresource="binding")], then)

    return rules


def compacted(site: Site) -> Met:
    """Watches hang, their revisions are compacted, and an API server that remembers nothing takes
    them up again.
    """
    held = Held()
    rules = [
        Rule(repeat(held), verb="watch", resource=name) for name in ("pods", "podgroups", "nodes")
    ]

    def then(site: Site) -> None:
        lists = site.lists()
        site.plane.compact()
        site.plane.kill_component("kube-apiserver")
        site.plane.start_component("kube-apiserver")
        site.proxy.rules.clear()
        held.release.set()
        site.wait_until(
            lambda: site.lists() > lists, within_s=60.0, what="a list after the compaction"
        )

    return Met(rules, then, reopens=True)


CODES = (401, 403, 404, 409, 410, 500, 503, 504)

ROWS: dict[str, Row] = {
    "none": lambda _: Met([]),
    "bind: arrives 2 s late": binds(Delay(2.0)),
    "bind: answered 2 s late": binds(Delay(2.0, applied=True)),
    "bind: dropped before the server had it": binds(Drop()),
    "bind: dropped after the server applied it": binds(Drop(applied=True)),
    "bind: reset before": binds(Drop(reset=True)),
    "bind: reset after": binds(Drop(applied=True, reset=True)),
    "bind: black hole": binds(BlackHole(), 1),
    "bind: black hole, applied": binds(BlackHole(applied=True), 1),
    **{f"bind: {code}": binds(refusal(code)) for code in CODES},
    "bind: 429, Retry-After 1": binds(refusal(429, retry_after_s=1)),
    "bind: 409 of etcd, applied 1 s later": binds(etcd_timeout(1.0)),
    "bind: 502 of a gateway, applied 1 s later": binds(gateway_page(502, 1.0)),
    "bind: slow body, 2 s": binds(Trickle(2.0)),
    "bind: half a body": binds(Trickle(0.0, cut=True)),
    "other writes: arrive 2 s late": others(Delay(2.0)),
    "other writes: dropped before": others(Drop()),
    "other writes: dropped after": others(Drop(applied=True)),
    "other writes: black hole": others(BlackHole(), 1),
    **{f"other writes: {code}": others(refusal(code)) for code in CODES if code != 404},
    # The API server's own 404 is believed: there is nobody to be told any more.
    "other writes: 404 of a gateway": others(gateway_page(404, None)),
    "other writes: 429, Retry-After 1": others(refusal(429, retry_after_s=1)),
    "other writes: slow body, 2 s": others(Trickle(2.0)),
    "other writes: half a body": others(Trickle(0.0, cut=True)),
    "list after 410: 401": listed_again("pods", refusal(401)),
    "list after 410: 403": listed_again("pods", refusal(403)),
    "list after 410: 429, Retry-After 1": listed_again("pods", refusal(429, retry_after_s=1)),
    "list after 410: 500, 503, 504": listed_again("pods", refusal(500), refusal(503), refusal(504)),
    "list after 410: dropped": listed_again("pods", Drop(), Drop(applied=True)),
    "list after 410: slow body, 2 s": listed_again("pods", Trickle(2.0)),
    "list after 410: half a body": listed_again("pods", Trickle(0.0, cut=True)),
    "list after 410: expired continue token": expired_continue,
    "list of PodGroups after 410: 500": listed_again("podgroups", refusal(500)),
    "watch of pods: cut within the second line": watch("pods", Watch(End.CUT, 1)),
    "watch of pods: closed after a line": watch("pods", Watch(End.CLOSED, 1)),
    "watch of pods: 410 after a line": watch("pods", Watch(End.EXPIRED, 1)),
    "watch of pods: every line twice": watch("pods", Repeated()),
    "watch of pods: all lines again after each": watch("pods", Repeated(replay=True)),
    "watch of pods: garbled after a line": watch("pods", Watch(End.GARBLED, 1)),
    "watch of pods: misshapen after a line": watch("pods", Watch(End.MISSHAPEN, 1)),
    "watch of pods: 503 when opened": watch("pods", refusal(503)),
    "watch of PodGroups: cut": watch("podgroups", Watch(End.CUT), 1),
    "watch of PodGroups: 410": watch("podgroups", Watch(End.EXPIRED), 2),
    "watch of PodGroups: every line twice": watch("podgroups", Repeated(), 2),
    "watch of PodGroups: garbled": watch("podgroups", Watch(End.GARBLED), 2),
    "watch of PodGroups: 503 when opened": watch("podgroups", refusal(503), 2),
    "watch of PodGroups: frozen": watch("podgroups", Watch(End.FROZEN), 2),
    "scheduler: kill -9 before a bind is sent": killed(Point.BEFORE),
    "scheduler: kill -9 after a bind is applied": killed(Point.APPLIED),
    "scheduler: kill -9 after a bind is answered": killed(Point.ANSWERED),
    "scheduler: SIGSTOP for 3 s": stopped,
    "API server: kill -9 at a bind, and its return": component("kube-apiserver"),
    "etcd: kill -9 at a bind, and its return": component("etcd"),
    "compaction under hanging watches": compacted,
    "watch of pods: frozen for good": watch("pods", Watch(End.FROZEN)),
}
