"""The fence: whether writes may leave this process.

Invariant: it is open until a moment of a clock that also counts while the machine is suspended, and closed from then on
without anybody's doing. It is looked at right before the bytes of a write go out, so that a process that was stopped
at any point writes nothing once its time is over. Bytes that left before may still arrive later: the moment keeps a
margin for that (`lease.candidate`). What it does *not* do: know why it is open.
"""

from __future__ import annotations

from gangsched.kube.http.faults import Fenced
from gangsched.kube.ports import Now, boot_s


class Fence:
    """Closed at first."""

    def __init__(self, now: Now = boot_s) -> None:
        self._now = now
        self._until_s = float("-inf")

    def is_open(self) -> bool:
        """Whether a write may leave now."""
        return self._now() < self._until_s

    def open_until(self, until_s: float) -> None:
        """Let writes out until then, by the fence's own clock."""
        self._until_s = until_s

    def close(self) -> None:
        """Let nothing out."""
        self._until_s = float("-inf")

    def check(self) -> None:
        """Raise Fenced unless a write may leave now."""
        if not self.is_open():
            raise Fenced("The lease is not ours, or may have run out: nothing was sent.")
