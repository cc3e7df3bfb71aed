"""The figures of one measurement, and how waits become figures.

Invariant: data only; nothing is rounded before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.gangs.cases import Gang


@dataclass(slots=True, kw_only=True)
class Result:
    """The figures of one measurement; times in seconds. None: does not apply."""

    case: str
    contender: str
    pods: int
    bound: int
    total_s: float
    """First creation (arrive, churn), start of the process (backlog) or median wave → last bind."""
    pods_per_s: float
    bind_span_s: float
    """First bind → last bind."""
    binds_per_s: float
    start_to_first_bind_s: float | None = None
    ready_s: float | None = None
    """Start of the process → ready."""
    pod_p50_ms: float | None = None
    pod_p99_ms: float | None = None
    gang_p50_ms: float | None = None
    """Last creation of a gang → its last bind."""
    sizes: dict[str, float] = field(default_factory=dict)
    """PACED: the same for each size of gang (`waits_by_size`)."""
    offered_pods_per_s: float | None = None
    """PACED: how many pods a second were created, on the average."""
    cpu_s: float | None = None
    rss_mib: float | None = None
    stall_ms: float | None = None
    """The longest stall of the event loop, start-up included; gangsched only."""
    starved_s: float | None = None
    """How long its main thread, able to run, waited for a core; start-up included."""
    server_cpu_s: float | None = None
    load_cpu_s: float | None = None
    clock_s: float = 0.0
    """How long the CPU clocks below ran."""
    foreign_cpu_s: float | None = None
    """What the rest of the machine took from us meanwhile; more than a little spoils
    a comparison.
    """
    waves_pods_per_s: list[float] = field(default_factory=list)
    watch_resumed: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        known = asdict(self)
        return {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in {**known, **known.pop("sizes")}.items()
            if value is not None and key != "sizes"
        }


def quantile_ms(ordered: Sequence[float], part: float) -> float:
    """The quantile of sorted seconds, in milliseconds."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1e3


def gang_waits(
    gangs: Iterable[Gang], created_s: Mapping[str, float], bound_s: Mapping[str, float]
) -> list[float]:
    """Sorted seconds from a gang's last creation to its last bind."""
    return sorted(
        max(bound_s[name] for name in gang.pods) - max(created_s[name] for name in gang.pods)
        for gang in gangs
    )


def waits_by_size(
    gangs: Sequence[Gang], created_s: Mapping[str, float], bound_s: Mapping[str, float]
) -> dict[str, float]:
    """`gang8_p50_ms`, `gang8_p99_ms` and so on for each size of gang."""
    found = {}
    for size in sorted({gang.members for gang in gangs}):
        waits = gang_waits([gang for gang in gangs if gang.members == size], created_s, bound_s)
        found[f"gang{size}_p50_ms"], found[f"gang{size}_p99_ms"] = (
            quantile_ms(waits, 0.5),
            quantile_ms(waits, 0.99),
        )
    return found
