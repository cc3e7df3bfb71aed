"""Internal faults: each is counted, and logged once an hour with its traceback.

Invariant: never raises and never waits, since it is called in the middle of a turn. However many
groups meet the same bug, one line of the log is about it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gangsched.model.fault import InternalFault
from gangsched.telemetry.metrics import Metrics

LOGGED_EVERY_S: Final = 3_600.0
MOST_REFERENCES: Final = 100


def kept_file(directory: Path, reference: str) -> Path:
    """Where the file about a fault is."""
    return directory / f"internal-error-{reference}.json.gz"


class InternalFaults:
    """`hear` is the bulkhead's hearer; `last` is the newest fault."""

    def __init__(
        self,
        metrics: Metrics,
        log: Any,
        *,
        now: Callable[[], float],
        keep: Callable[[InternalFault], None] = lambda fault: None,
    ) -> None:
        """`keep` receives each fault that is logged; `now` is in monotonic seconds."""
        self._metrics = metrics
        self._log = log
        self._now = now
        self._keep = keep
        self._logged_s: OrderedDict[str, float] = OrderedDict()
        self.last: InternalFault | None = None

    @property
    def sentence(self) -> str:
        """What is told about the newest fault."""
        if self.last is not None:
            return f"internal error (reference {self.last.reference})"

        return ""

    def hear(self, fault: InternalFault, error: BaseException) -> None:
        """Count a fault, and log it unless its reference was logged within the hour."""
        self.last = fault
        self._metrics.internal_errors[fault.place].inc()

        logged_s = self._logged_s.get(fault.reference)
        if logged_s is not None and self._now() < logged_s + LOGGED_EVERY_S:
            return

        self._logged_s[fault.reference] = self._now()
        if len(self._logged_s) > MOST_REFERENCES:
            self._logged_s.popitem(last=False)

        self._log.error(
            "internal error",
            reference=fault.reference,
            place=fault.place.value,
            group=fault.group,
            cause=fault.cause,
            traceback=fault.trace,
        )
        self._keep(fault)
