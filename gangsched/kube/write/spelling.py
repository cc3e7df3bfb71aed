"""How times and texts are spelled in API objects."""

from __future__ import annotations

from datetime import datetime

MESSAGE_BYTES = 1024
"""What an Event's note may have at most (events.k8s.io/v1); conditions are kept to the same."""
CUT = "… (cut)"


def rfc3339(moment: datetime) -> str:
    """A metav1.Time: whole seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """A metav1.MicroTime, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def cut(message: str) -> str:
    """A message of at most `MESSAGE_BYTES`; one that was longer says so at its end."""
    raw = message.encode()
    if len(raw) <= MESSAGE_BYTES:
        return message
    return raw[: MESSAGE_BYTES - len(CUT.encode())].decode(errors="ignore") + CUT
