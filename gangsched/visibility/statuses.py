"""Refusals as in every API server: metav1.Status with code and reason."""

from __future__ import annotations

from gangsched.visibility.ports import Json

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    408: "Timeout",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
WORDS = 300
COMPLAINTS = 5
"""The most of one complaint, and the most of them, that a refusal tells."""


class RequestRefused(Exception):  # noqa: N818  (an answer, not a bug)
    """The request is refused; `retry_after_s` is set for 429 and 503."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        retry_after_s: int = 0,
        details: Json | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s
        self._details = details or {}

    def body(self) -> Json:
        """The Status object."""
        details = {
            **self._details,
            **({"retryAfterSeconds": self.retry_after_s} if self.retry_after_s else {}),
        }
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": REASONS[self.code],
            **({"details": details} if details else {}),
            "code": self.code,
        }


def invalid(kind: str, name: str, complaints: list[tuple[str, str]]) -> RequestRefused:
    """A Status 422 that lists the invalid fields with their errors, up to the size limit."""
    complaints = [
        (field, text if len(text) <= WORDS else f"{text[:WORDS]}…")
        for field, text in complaints[:COMPLAINTS]
    ]
    causes = [
        {"reason": "FieldValueInvalid", "message": text, "field": field}
        for field, text in complaints
    ]
    said = "; ".join(f"{field}: {text}" for field, text in complaints)
    details: Json = {"kind": kind, "name": name, "causes": causes}

    return RequestRefused(422, f'{kind} "{name}" is invalid: {said}', details=details)
