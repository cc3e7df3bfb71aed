"""Why nobody renews a Lease: an etcd that takes no writes, a ServiceAccount whose tokens are
refused, and what the replicas' logs say.

Invariant: nothing is stored. Whether etcd takes writes is asked by creating the Lease that exists:
etcd compares and refuses, and one that is full refuses before it compares. A dry run would not
reach it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from gangsched.api.timestamps import parse_timestamp
from gangsched.kube.http.answers import understood
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import CONFLICT, NOT_FOUND, SERVER_ERROR, ApiFault, Fault

LABEL = "app.kubernetes.io/name=gangsched"
NO_SPACE = "database space exceeded"
UNAUTHORIZED = "Unauthorized"
BELIEVED_S = 30.0
"""The API server believes a token for some seconds after its account is gone."""
REPLICAS = 3
"""Of so many replicas the logs are read."""
LINES = 200
WORDS = 300
"""Characters of a log line that are repeated."""
BAD = frozenset({"warning", "error", "critical"})


class Place(NamedTuple):
    """Where gangsched is: its namespace, and there the names of its Lease and ServiceAccount."""

    namespace: str
    lease: str
    account: str


class Cause(NamedTuple):
    """What is known of why, as sentences, and what to do."""

    sentence: str
    todo: str


class Warned(NamedTuple):
    """A line of a log that tells of trouble."""

    at: str
    words: str


def cause(
    client: BlockingClient,
    place: Place,
    *,
    exists: bool,
    holder: str = "",
    since: str = "",
) -> Cause:
    """Why nobody has renewed the Lease, which `exists`, since a time, as far as it can be known
    from outside; else where to look. Raises Fault.
    """
    # One that does not exist would be made.
    if exists and (refusal := _write_refused(client, place)):
        return refusal

    replicas = _replicas(client, place.namespace)
    if wrong_account := _account(client, place, replicas or (), since):
        return wrong_account

    return _of_logs(client, place.namespace, replicas, holder, since)


# --- etcd ---------------------------------------------------------------------------------------


def _write_refused(client: BlockingClient, place: Place) -> Cause | None:
    """What the API server says of a write of a Lease that exists, if it is not that it does."""
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": place.namespace, "name": place.lease},
    }
    where = f"/apis/coordination.k8s.io/v1/namespaces/{quote(place.namespace, safe='')}/leases"
    try:
        client.json("POST", where, body)
    except ApiFault as fault:
        # Who may not create Leases learns nothing, as little as from an answer of a webhook.
        if fault.status == CONFLICT or fault.status < SERVER_ERROR:
            return None

        answer = str(fault).rstrip(".")
    else:
        return None

    if NO_SPACE in answer:
        return Cause(
            f"etcd is full and takes no writes of anybody ({answer}).",
            "Delete what fills etcd, then compact, defragment and disarm it (docs/runbook.md); what"
            " failed is tried again by itself.",
        )

    return Cause(
        f"The API server cannot store anything ({answer}).",
        "See `kubectl get --raw '/readyz?verbose'`, and the logs of kube-apiserver and etcd.",
    )


# --- the account ----------------------------------------------------------------------------------


def _replicas(client: BlockingClient, namespace: str) -> Sequence[Mapping[str, Any]] | None:
    """The pods of gangsched; None if they cannot be read. Raises Fault."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    try:
        return client.items(path, labelSelector=LABEL)
    except ApiFault:
        return None


def _account(
    client: BlockingClient,
    place: Place,
    replicas: Sequence[Mapping[str, Any]],
    since: str,
) -> Cause | None:
    """Whether the ServiceAccount is gone, or newer than the replicas, whose tokens are then those
    of the account before. Raises Fault.
    """
    namespace, account = place.namespace, place.account
    where = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts"
    try:
        body = client.named(f"{where}/{quote(account, safe='')}")
    except ApiFault as fault:
        if fault.status == NOT_FOUND and fault.is_status:
            return Cause(
                f"ServiceAccount {namespace}/{account} does not exist: all requests of its replicas"
                " are refused (Unauthorized).",
                f"Apply the manifests again, then {_restart(namespace)}",
            )

        return None

    created = str(body["metadata"].get("creationTimestamp") or "")
    renewed_s, created_s = parse_timestamp(since), parse_timestamp(created)
    if not replicas or created_s is None:
        return None

    # Who has renewed the Lease since then has a token of the account of today.
    if renewed_s is not None and renewed_s > created_s + BELIEVED_S:
        return None

    with understood("The list of the replicas"):
        oldest = min(
            replicas,
            key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]),
        )
        newest = max(pod["metadata"]["creationTimestamp"] for pod in replicas)

    # One that started with the account of today would lead.
    if newest >= created:
        return None

    return Cause(
        f"ServiceAccount {namespace}/{account} was created again at {created}, after"
        f" {oldest['metadata']['name']} started: the tokens of the one before are refused"
        " (Unauthorized).",
        _restart(namespace),
    )


def _restart(namespace: str) -> str:
    return f"kubectl -n {namespace} rollout restart deployment -l {LABEL}"


# --- logs -----------------------------------------------------------------------------------------


def _of_logs(
    client: BlockingClient,
    namespace: str,
    replicas: Sequence[Mapping[str, Any]] | None,
    holder: str,
    since: str,
) -> Cause:
    """What the log of a replica has warned of since, the one that held the Lease first; else whose
    log to read.
    """
    with understood("The list of the replicas"):
        containers = {
            str(pod["metadata"]["name"]): str(pod["spec"]["containers"][0]["name"])
            for pod in replicas or ()
        }

    names = sorted(containers, key=lambda pod: (not holder.startswith(pod), pod))
    for pod in names[:REPLICAS]:
        if warned := _warned(client, namespace, pod, containers[pod], since):
            return Cause(f"The log of {pod} says at {warned.at}: {warned.words}", _todo(warned))

    if replicas is not None and not names:
        return Cause(
            f"No pod of namespace {namespace} has the label {LABEL}.",
            f"Start one, or read the log of {holder or 'the daemon'} where it runs.",
        )

    todo = f"kubectl -n {namespace} logs -l {LABEL} --prefix --tail=50"
    if names and holder and not any(holder.startswith(pod) for pod in names):
        todo += f" (and the log of {holder}, which is none of these pods)"

    return Cause("", todo)


def _todo(warned: Warned) -> str:
    if UNAUTHORIZED in warned.words:
        return (
            "Renew the token or the kubeconfig of the daemon, which reads it again within seconds;"
            " the kubelet renews that of a pod that is created again (docs/runbook.md)."
        )

    return "docs/runbook.md, GangschedNoLeader."


def _warned(
    client: BlockingClient,
    namespace: str,
    pod: str,
    container: str,
    since: str,
) -> Warned | None:
    """The last warning about the Lease in a log, else the last of all; None if there is none since,
    or it cannot be read.
    """
    where = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    query = f"container={quote(container, safe='')}&tailLines={LINES}"
    try:
        text = client.request("GET", f"{where}/log?{query}", accept="*/*")
    # Its kubelet may be gone.
    except Fault:
        return None

    after_s = parse_timestamp(since) or 0.0
    warnings = [
        warned
        for warned in _warnings(text.decode(errors="replace"))
        if (parse_timestamp(warned.at) or 0.0) >= after_s
    ]
    of_lease = [warned for warned in warnings if warned.words.startswith("Cannot use the lease")]
    chosen = of_lease or warnings
    return chosen[-1] if chosen else None


def _warnings(text: str) -> Iterator[Warned]:
    """Lines of JSON that warn, or tell of a fault."""
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue

        if isinstance(event, dict) and event.get("level") in BAD:
            yield Warned(str(event.get("timestamp") or ""), str(event.get("event") or "")[:WORDS])
