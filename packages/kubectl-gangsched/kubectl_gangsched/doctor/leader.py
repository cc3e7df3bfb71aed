"""Checks of who schedules: a Lease that nobody renews, and two daemons that decide at the same
time.

Invariant: whether the Lease is renewed does not depend on this computer's clock alone: one that
looks stale is read again. A daemon is known by the reporting instance of its Events.
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
from kubectl_gangsched.doctor.finding import Finding

EVENTS = "/api/v1/events"
CONTROLLER = "gangsched"
LOOK_AGAIN_S = 6.0
"""Longer than the time between two renewals of a Lease of 15 s."""
CHECK = "leader"


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
    namespace: str,
    name: str,
    *,
    is_expected: bool,
) -> Iterator[Finding]:
    """Whether nobody leads; `is_expected` if the installation elects a leader. Raises Fault."""
    lease = read(client, namespace, name)
    where = f"Lease {namespace}/{name}"
    todo = (
        f"kubectl -n {namespace} get pods -l app.kubernetes.io/name=gangsched, and read their logs."
    )

    if lease is None:
        if is_expected:
            yield Finding(
                CHECK,
                f"{where} does not exist: no replica has ever led, and no gang is scheduled.",
                todo,
            )

        return

    yield from _orders(lease, f"kubectl -n {namespace} annotate lease {name}")
    if not lease.holder:
        text = (
            f"{where} has no holder since {lease.renewed or 'it was created'}: no gang is"
            " scheduled."
        )
        yield Finding(CHECK, text, todo)
        return

    if not _is_stale(lease):
        return

    time.sleep(LOOK_AGAIN_S)
    lease_later = read(client, namespace, name)
    if lease_later is not None and lease_later[:2] == lease[:2]:
        text = (
            f"{where} is held by {lease.holder}, which renewed it last at {lease.renewed}; it is"
            f" valid for {lease.duration_s:g} s: no gang is scheduled."
        )
        yield Finding(CHECK, text, todo)


def _orders(lease: LeaseSeen, annotate: str) -> Iterator[Finding]:
    """Orders that hold, with the command that ends them, and those that nobody understands."""
    for sentence in changes(NO_ORDERS, lease.orders):
        key = sentence.rpartition("(")[2].partition(")")[0]
        withdraw = f"{annotate} {key}- once its reason is gone (docs/runbook.md)."
        yield Finding("orders", sentence, withdraw)

    for sentence in lease.misread:
        yield Finding("orders", sentence, f"{annotate} with a key and a value of docs/runbook.md.")


def _is_stale(lease: LeaseSeen) -> bool:
    renewed_s = parse_timestamp(lease.renewed)
    return renewed_s is None or time.time() - renewed_s > lease.duration_s


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
