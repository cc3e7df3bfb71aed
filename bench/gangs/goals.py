"""The goals of the figures, and whether they are met.

Invariant: a goal is a figure, or the ratio of two figures of the same run, with its bound; without
a figure it is neither met nor missed. Nothing is rounded before the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Cases = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Goal:
    """`measured` is None if its case is missing; `at_least`: `bound` is a lower bound, else an
    upper one.
    """

    what: str
    measured: float | None
    bound: float
    unit: str = ""
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        """Whether it is met; None without a figure."""
        if self.measured is None:
            return None
        return self.measured >= self.bound if self.at_least else self.measured < self.bound

    @property
    def verdict(self) -> str:
        """`met`, `missed` or `not measured`."""
        return {None: "not measured", True: "met", False: "**missed**"}[self.met]

    def asked(self) -> str:
        """The bound, for people."""
        return f"{'≥' if self.at_least else '<'} {self.bound:g}{self.unit}"

    def shown(self) -> str:
        """The figure, for people."""
        return "" if self.measured is None else f"{self.measured:.3g}{self.unit}"

    def line(self) -> str:
        """All of it on a line of text."""
        return f"{self.verdict.strip('*'):13} {self.shown():>9} ({self.asked()})  {self.what}"


def goals(cases: Cases, ingest: Mapping[str, Any] | None) -> list[Goal]:
    """All goals in their order."""
    found = [
        *_half_load(cases),
        *_backlog(cases),
        *_arrive(cases),
        *_churn(cases),
        *_newcomer(cases),
        *_served(cases),
    ]
    found.append(
        Goal(
            "throughput of other gangs while 1,000 unschedulable gangs wait, relative to none"
            " waiting",
            _over(
                _figure(cases, "impossible", "gangsched"), _figure(cases, "feasible", "gangsched")
            ),
            0.9,
            " ×",
        )
    )
    start = ingest["start"]["medians"] if ingest else {}
    found += [
        Goal(
            "50,000 pods and 5,000 nodes: process start → ready",
            start.get("ready_s"),
            8,
            " s",
            False,
        ),
        Goal("the same: peak RSS", start.get("rss_mib"), 400, " MiB", False),
        Goal(
            "the same: longest stall of the event loop",
            start.get("longest_stall_ms"),
            100,
            " ms",
            False,
        ),
    ]
    cpu, pods = _figure(cases, "small-arrive", "gangsched", "cpu_s"), _pods(cases, "small-arrive")
    per_pod = cpu / pods * 1e3 if cpu is not None and pods else None
    found.append(
        Goal("CPU of the whole daemon per bound pod, 100 × 20, arrive", per_pod, 0.42, " ms", False)
    )
    stall = _figure(cases, "wide", "gangsched", "stall_ms")
    found.append(Goal("5,000 nodes: longest stall, start-up included", stall, 50, " ms", False))
    return found


def _half_load(cases: Cases) -> Iterator[Goal]:
    for quantile, bound in (("p50", 15), ("p99", 60)):
        wait = _figure(cases, "half-load", "gangsched", f"gang8_{quantile}_ms")
        yield Goal(
            f"half load, gangs of 8: last creation → last bind, {quantile}",
            wait,
            bound,
            " ms",
            False,
        )


def _churn(cases: Cases) -> Iterator[Goal]:
    own = _figure(cases, "churn", "gangsched")
    for name, title, bound in (
        ("kube-scheduler", "plain kube-scheduler", 1.15),
        ("native", "native gangs", 1.8),
    ):
        yield Goal(
            f"churn: against {title}", _over(own, _figure(cases, "churn", name)), bound, " ×"
        )


def _newcomer(cases: Cases) -> Iterator[Goal]:
    where = "100 × 20, on the Python of `make install`"
    for case, mode, bound in (("small-arrive", "arrive", 1.4), ("small-backlog", "backlog", 1.7)):
        ratio = _over(_figure(cases, case, "newcomer"), _figure(cases, case, "kube-scheduler"))
        yield Goal(f"{where}, {mode}: against plain kube-scheduler", ratio, bound, " ×")
    for name, title in (("gangsched", "100 × 20, backlog"), ("newcomer", where)):
        start_s = _figure(cases, "small-backlog", name, "start_to_first_bind_s")
        yield Goal(f"{title}: process start → first bind", start_s, 0.5, " s", False)


def _served(cases: Cases) -> Iterator[Goal]:
    for case, mode in (("small-arrive", "arrive"), ("small-backlog", "backlog")):
        ratio = _over(_figure(cases, case, "served"), _figure(cases, case, "gangsched"))
        yield Goal(
            f"100 × 20, {mode}, with the gangs API: throughput relative to the API disabled",
            ratio,
            0.97,
            " ×",
        )


def _backlog(cases: Cases) -> Iterator[Goal]:
    for case, shape in (("small-backlog", "100 × 20"), ("large-backlog", "4 × 500")):
        own = _figure(cases, case, "gangsched")
        binds = (_figure(cases, case, name, "binds_per_s") for name in ("gangsched", "raw"))
        yield Goal(
            f"{shape}, backlog: first bind → last bind, against the raw binder",
            _over(*binds),
            0.8,
            " ×",
        )
        yield Goal(
            f"{shape}, backlog: against native gangs",
            _over(own, _figure(cases, case, "native")),
            3.5,
            " ×",
        )
        plain = _figure(cases, case, "kube-scheduler")
        yield Goal(f"{shape}, backlog: against plain kube-scheduler", _over(own, plain), 1.7, " ×")


def _arrive(cases: Cases) -> Iterator[Goal]:
    bounds = (
        ("kube-scheduler", "plain kube-scheduler", 1.4),
        ("native", "native gangs", 1.9),
        ("raw", "the raw create-and-bind client", 0.7),
    )
    for case, shape in (("small-arrive", "100 × 20"), ("large-arrive", "4 × 500")):
        own = _figure(cases, case, "gangsched")
        for name, title, bound in bounds:
            yield Goal(
                f"{shape}, arrive: against {title}",
                _over(own, _figure(cases, case, name)),
                bound,
                " ×",
            )
    p50 = _figure(cases, "small-arrive", "gangsched", "gang_p50_ms")
    yield Goal("20-pod gang, arrive: last creation → last bind, p50", p50, 150, " ms", False)


def _figure(cases: Cases, case: str, contender: str, figure: str = "pods_per_s") -> float | None:
    found: float | None = cases.get(case, {}).get("medians", {}).get(contender, {}).get(figure)
    return found


def _pods(cases: Cases, case: str) -> int:
    runs = cases.get(case, {}).get("runs", {}).get("gangsched", [])
    return int(runs[0]["pods"]) if runs else 0


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None
