"""Checks of who schedules: a Lease that nobody renews, and two daemons that decide at the same
time.

Invariant: whether the Lease is renewed does not depend on a clock alone: one that looks stale is
read again. Times are compared with the API server's. A daemon is known by the reporting instance of
its Events.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from gangsched.api.admin_orders import changes, misread, read_orders
from gangsched.api.timestamps import parse_timestamp
from gangsched.kube.http.answers import understood
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import NOT_FOUND, ApiFault
from gangsched.model.orders import NO_ORDERS, Orders
from kubectl_gangsched.doctor import unrenewed
from kubectl_gangsched.doctor.finding import Finding

EVENTS = "/api/v1/events"
CONTROLLER = "gangsched"
LOOK_AGAIN_S = 6.0
"""Longer than the time between two renewals of a Lease of 15 s."""
CHECK = "leader"
CLOCK = "clock"


class LeaseSeen(NamedTuple):
    """The Lease: its holder, "" for nobody, when it was renewed and acquired (times), for how long
    it is valid, and the orders of an administrator.
    """

    holder: str
    renewed: str
    acquired: str
    duration_s: float
    orders: Orders
    #: Sentences about annotations that are meant as orders, and are none.
    misread: tuple[str, ...] = ()


def read(client: BlockingClient, namespace: str, name: str) -> LeaseSeen | None:
    """The Lease; None if there is none. Raises Fault."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}"
    path += f"/leases/{quote(name, safe='')}"
    try:
        body = client.named(path)
    except ApiFault as fault:
        if fault.status == NOT_FOUND:
            return None

        raise

    with understood(f"Lease {namespace}/{name}"):
        spec = body.get("spec") or {}
        annotations = body["metadata"].get("annotations") or {}
        return LeaseSeen(
            str(spec.get("holderIdentity") or ""),
            str(spec.get("renewTime") or ""),
            str(spec.get("acquireTime") or ""),
            float(spec.get("leaseDurationSeconds") or 15.0),
            read_orders(annotations),
            tuple(misread(annotations)),
        )


def unled(
    client: BlockingClient,
    place: unrenewed.Place,
    lease: LeaseSeen | None,
    *,
    is_expected: bool,
) -> Iterator[Finding]:
    """Whether nobody leads according to the `lease` just read, and why; `is_expected` if the
    installation elects a leader. Raises Fault.
    """
    where = f"Lease {place.namespace}/{place.lease}"
    if lease is None:
        if is_expected:
            cause = unrenewed.cause(client, place, exists=False)
            yield _stopped(
                f"{where} does not exist: no replica has ever led, and no gang is scheduled.",
                cause,
            )

        return

    yield from _orders(lease, f"kubectl -n {place.namespace} annotate lease {place.lease}")
    if not lease.holder:
        text = (
            f"{where} has no holder since {lease.renewed or 'it was created'}: no gang is"
            " scheduled."
        )
        yield _stopped(text, unrenewed.cause(client, place, exists=True, since=lease.renewed))
        return

    if abs(_ahead_s(lease, client)) <= lease.duration_s:
        return

    time.sleep(LOOK_AGAIN_S)
    lease_later = read(client, place.namespace, place.lease)
    if lease_later is None:
        return

    if lease_later[:2] == lease[:2]:
        text = (
            f"{where} is held by {lease.holder}, which renewed it last at {lease.renewed}; it is"
            f" valid for {lease.duration_s:g} s: no gang is scheduled."
        )
        cause = unrenewed.cause(
            client,
            place,
            exists=True,
            holder=lease.holder,
            since=lease.renewed,
        )
        yield _stopped(text, cause)
        return

    ahead_s = _ahead_s(lease_later, client)
    if lease_later.holder and abs(ahead_s) > lease.duration_s:
        yield _wrong_clock(lease_later.holder, ahead_s)


def _stopped(text: str, cause: unrenewed.Cause) -> Finding:
    """Nobody leads, and what is known of why."""
    return Finding(CHECK, f"{text} {cause.sentence}".rstrip(), cause.todo)


def _wrong_clock(holder: str, ahead_s: float) -> Finding:
    """The leader renews the Lease, at other times than the API server's."""
    where = "ahead of" if ahead_s > 0 else "behind"
    text = (
        f"The clock of {holder}, which leads, is {abs(ahead_s):.0f} s {where} the API"
        " server's: the times that it promises, and for how long pods wait and run in its eyes, are"
        " wrong by as much."
    )
    todo = (
        "Correct the time of its node, or of the API server's (NTP); until then deleting its pod"
        " moves the leader."
    )
    return Finding(CLOCK, text, todo)


def _orders(lease: LeaseSeen, annotate: str) -> Iterator[Finding]:
    """Orders that hold, with the command that ends them, and those that nobody understands."""
    for sentence in changes(NO_ORDERS, lease.orders):
        key = sentence.rpartition("(")[2].partition(")")[0]
        withdraw = f"{annotate} {key}- once its reason is gone (docs/runbook.md)."
        yield Finding("orders", sentence, withdraw)

    for sentence in lease.misread:
        yield Finding("orders", sentence, f"{annotate} with a key and a value of docs/runbook.md.")


def _ahead_s(lease: LeaseSeen, client: BlockingClient) -> float:
    """By how much it was renewed after the API server's last answer; below 0 if before."""
    now_s = client.answered_s or time.time()
    return (parse_timestamp(lease.renewed) or 0.0) - now_s


class Seen(NamedTuple):
    """When a daemon wrote its first and its last Event, as times, which sort as texts."""

    first: str
    last: str


def rivals(client: BlockingClient) -> Iterator[Finding]:
    """Daemons of one name that decide at the same time. Raises Fault."""
    events = client.items(EVENTS, fieldSelector=f"reportingComponent={CONTROLLER}")
    with understood("The list of Events"):
        identities = writers(events)

    names = sorted(identities)
    # One that took over from another began after the other's end.
    pairs = []

    for place, one in enumerate(names):
        for two in names[place + 1 :]:
            if (
                identities[one].first < identities[two].last
                and identities[two].first < identities[one].last
            ):
                pairs.append((one, two))

    if pairs:
        both = sorted({name for pair in pairs for name in pair})
        until = max(min(identities[one].last, identities[two].last) for one, two in pairs)
        yield Finding(
            CHECK,
            f"{len(both)} daemons schedule at the same time: {', '.join(both)} wrote Events by"
            f" turns, until {until}. Each takes what the other has promised.",
            "If they still run, end all but one, or give each its own scheduler name and Lease;"
            " replicas of one name need --leader-elect.",
        )


def writers(events: Sequence[Mapping[str, Any]]) -> dict[str, Seen]:
    """The daemons that wrote these Events."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for event in events:
        instance = str(
            event.get("reportingInstance") or (event.get("source") or {}).get("host") or ""
        )
        if instance:
            by_name[instance] += [moment for moment in _moments(event) if moment]

    return {
        instance: Seen(min(moments), max(moments))
        for instance, moments in by_name.items()
        if moments
    }


def _moments(event: Mapping[str, Any]) -> tuple[str, ...]:
    series = event.get("series") or {}
    given = (event.get("eventTime"), event.get("firstTimestamp"), event.get("lastTimestamp"))
    return tuple(str(moment or "")[:19] for moment in (*given, series.get("lastObservedTime")))
