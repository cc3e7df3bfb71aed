"""The request of a bind, and how its result is read back from the pod."""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.api.keys import PERMITTED
from gangsched.api.permits import format_permit
from gangsched.kube.read.wire import Ignored
from gangsched.model.protocol import Bind, BindFailed, BindGone, Bound, Outcome


class PodMeta(msgspec.Struct, rename="camel"):
    """Which pod it is, and whether it is being deleted."""

    uid: str = ""
    deletion_timestamp: str | None = None


class _BoundSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduling_gates: list[Ignored] | None = None


class _PodReadBack(msgspec.Struct):
    """Only the fields that decide, so that a pod with an invalid other field can be read
    back, too.
    """

    metadata: PodMeta
    spec: _BoundSpec = msgspec.field(default_factory=_BoundSpec)


read_back_decoder = msgspec.json.Decoder(_PodReadBack)


def pod_path(pod: Any) -> str:
    """The path of the pod with this `namespace` and `name`."""
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def encode_binding(bind: Bind) -> bytes:
    """The Binding object; the API server copies its annotations onto the pod in the same write."""
    metadata: dict[str, object] = {"name": bind.name, "namespace": bind.namespace, "uid": bind.uid}
    if bind.permitted is not None:
        metadata["annotations"] = {PERMITTED: format_permit(bind.permitted, bind.uid)}

    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": bind.node},
        }
    )


def outcome_of(bind: Bind, answer: bytes, *, why: str) -> Outcome:
    """Outcome of a bind according to the pod read back (semantics B3).
    Raises msgspec.DecodeError.
    """
    pod = read_back_decoder.decode(answer)
    if pod.metadata.uid != bind.uid:
        return BindGone(bind.uid, bind.node, "the pod was deleted and recreated")
    if pod.spec.node_name == bind.node:
        return Bound(bind.uid, bind.node)
    if pod.spec.node_name:
        return BindGone(bind.uid, bind.node, f"the pod is bound to {pod.spec.node_name}")
    if pod.metadata.deletion_timestamp is not None:
        return BindGone(bind.uid, bind.node, "the pod is being deleted")
    if pod.spec.scheduling_gates:
        return BindGone(bind.uid, bind.node, "the pod is gated")

    return BindFailed(bind.uid, bind.node, why)
