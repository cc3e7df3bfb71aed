"""Faults: errors of the API server and of the network.

Invariant: `client.py` raises every error of the transport or the server as one of these, chained,
with one sentence as message. The caller retries a fault with back-off, except `Misconfigured`,
which ends the program with exit code 2.
"""

from __future__ import annotations

import os
import ssl
from typing import NamedTuple

BAD_REQUEST = 400
UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
GONE = 410
UNPROCESSABLE = 422
TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500


class Fault(Exception):  # noqa: N818  (faults are not errors of ours, see the style guide)
    """Base of all faults; `str()` is one sentence."""


class Misconfigured(Fault):
    """The daemon cannot run with this configuration; the sentence names the remedy."""


class Unreachable(Fault):
    """No answer: refused, timed out, or cut off. The request may have been carried out."""


class Fenced(Fault):
    """The request was not sent: another instance may hold the lease (`http.fence`)."""


class Silent(Unreachable):
    """An open stream on which nothing arrives, not even the bookmarks that were requested."""


class Malformed(Fault):
    """An answer that violates the API (a proxy's HTML page, truncated JSON)."""


class Cause(NamedTuple):
    """One cause in a Status (metav1.StatusCause); `field` names the invalid field."""

    reason: str
    message: str
    field: str = ""


class ApiFault(Fault):
    """An error answer, of the API server if `is_status`, else of a proxy or gateway."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        is_status: bool = True,
        retry_after_s: float | None = None,
        causes: tuple[Cause, ...] = (),
    ) -> None:
        super().__init__(message or reason or f"HTTP status {status}")
        self.status = status
        self.reason = reason
        self.message = message
        self.is_status = is_status
        self.retry_after_s = retry_after_s
        self.causes = causes


def is_replaced(fault: ApiFault) -> bool:
    """Whether the object has another uid than the write expects, according to a failed precondition
    or an immutable field.
    """
    # no object's name has capitals
    precondition = fault.status == CONFLICT and "UID in precondition" in fault.message
    return precondition or any(cause.field == "metadata.uid" for cause in fault.causes)


def is_denied(fault: ApiFault) -> bool:
    """Whether an admission policy or webhook denied the request: it may allow it later, whatever
    status it chose. That of a policy is 422 if its author chose none.
    """
    return "denied request: " in fault.message or "denied the request" in fault.message


def may_come_late(fault: Fault) -> bool:
    """Whether the request may still be carried out, after others that are sent from now on."""
    if isinstance(fault, ApiFault):
        return not fault.is_status or fault.status >= SERVER_ERROR

    return not isinstance(fault, Fenced)


def is_away(fault: Fault) -> bool:
    """Whether the error suggests that the server is starting, restarting or overloaded."""
    if isinstance(fault, ApiFault):
        # 429 is API priority and fairness: the request is fine, the server is busy.
        return fault.status >= SERVER_ERROR or fault.status == TOO_MANY_REQUESTS

    return isinstance(fault, Unreachable)


def said(error: BaseException) -> str:
    """Message of a library's exception, on one line without a full stop; its type's name if it is
    empty.
    """
    # aiohttp wraps what the system said into a sentence that shows the TLS context's address in
    # memory.
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    if isinstance(inner, BaseException):
        return said(inner)

    if isinstance(error, OSError) and error.strerror:
        # asyncio puts addresses into strerror. Look-ups have negative numbers and TLS its own: no
        # text of the system's.
        number = 0 if isinstance(error, ssl.SSLError) else error.errno or 0
        return os.strerror(number) if number > 0 else error.strerror

    text = " ".join(str(error).split()).rstrip(".")
    return text or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
