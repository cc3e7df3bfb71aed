"""Error answers of the API server as faults.

Invariant: an error answer becomes an `ApiFault` with any body; an answer that does not have the
expected form becomes `Malformed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from gangsched.kube.http.faults import ApiFault, Cause, Malformed

T = TypeVar("T")
ANY_JSON: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float = 0
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    """The API's Status object, as far as faults need it."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_status_decoder = msgspec.json.Decoder(_Status)


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Reads an answer that was decoded without a type. Raises Malformed where it has another shape
    than the API's.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise Malformed(f"{what} has another shape than that of the Kubernetes API.") from error


def decoded(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, what: str) -> T:
    """Decode an answer. Raises Malformed; `what` begins its message, such as "The list of pods is
    malformed".
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"{what}: {error}.") from error


def fault_of(status: int, body: bytes, retry_after: str | None) -> ApiFault:
    """The fault of an error answer; a body that is not a Status (such as the page of a proxy) is
    quoted in part.
    """
    try:
        reply = _status_decoder.decode(body)
    except msgspec.DecodeError:
        # A proxy's error page: enough of it to recognise the proxy, on one line.
        reply = _Status(message=" ".join(body[:200].decode(errors="replace").split()))

    details = reply.details or _Details()
    # Retry-After may also be a date, which API servers never send.
    after_s = (
        float(retry_after) if retry_after and retry_after.isdigit() else details.retry_after_seconds
    )
    is_status = reply.kind == "Status"
    causes = tuple(
        Cause(cause.reason, cause.message, cause.field) for cause in details.causes or ()
    )

    return ApiFault(
        status,
        reply.reason,
        reply.message,
        is_status=is_status,
        retry_after_s=after_s or None,
        causes=causes,
    )
