"""The write gate (fence) of leader election: whether writes may leave this process.

Invariant: it is open until a deadline on a clock that also runs while the machine is suspended, and
then closes by itself. It is checked right before the bytes of a write are sent, so a process that
is suspended at any point sends no write after its deadline. Bytes sent before may arrive later; the
deadline includes a margin for them (`lease.candidate`).
"""

from __future__ import annotations

from gangsched.kube.http.faults import Fenced
from gangsched.kube.ports import Now, boot_s


class Fence:
    """A write gate, initially closed."""

    def __init__(self, now: Now = boot_s) -> None:
        self._now = now
        self._until_s = float("-inf")

    def is_open(self) -> bool:
        """Whether a write may be sent now."""
        return self._now() < self._until_s

    def open_until(self, until_s: float) -> None:
        """Allow writes until `until_s` of the gate's own clock."""
        self._until_s = until_s

    def close(self) -> None:
        """Block all writes."""
        self._until_s = float("-inf")

    def check(self) -> None:
        """Raise Fenced unless a write may be sent now."""
        if not self.is_open():
            raise Fenced("The lease is not ours, or may have run out: nothing was sent.")
