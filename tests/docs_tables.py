"""The tables of the manual that are made from the code: `make docs-tables` writes them,
`test_docs_tables` checks.

Invariant: a table stands between `<!-- table: NAME -->` and `<!-- end of table -->`, or comments of
YAML that say the same; nothing between these is written by hand. What a row says is said in the
code: descriptions of settings, the HELP of metrics.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import cast

import yaml
from prometheus_client.metrics_core import Metric

from gangsched.daemon import Daemon
from gangsched.kube.http.client import ApiClient
from gangsched.kube.http.connection_pool import ConnectionPool
from gangsched.kube.http.permissions import Lease
from gangsched.kube.lease.candidate import Timing
from gangsched.kube.lease.leadership import lead_by_lease
from gangsched.kube.ports import Runtime
from gangsched.kube.read.informers import Informers
from gangsched.model.bounds import MANY
from gangsched.options import written
from gangsched.settings import LIVE, Settings
from kubectl_gangsched.outputs import schema
from tests.properties.sized_objects import RESOURCES, places
from tests.unit.state.reporting.waiting_cases import rows

ROOT = Path(__file__).resolve().parents[1]
OURS = ("gangsched_", "leader_election_")
MOST_VALUES = 6
"""A label with more values than this is named without them."""
_MARKED = re.compile(
    r"(?s)((?:<!--|    #) table: ([a-z-]+)[^\n]*\n).*?(\n(?:<!--|    #) end of table)"
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cells)} |".replace("| --- ", "|---").replace("--- |", "---|")
        for cells in lines
    )


# --- settings -----------------------------------------------------------------------------------


def settings() -> str:
    """Every setting with its default and its meaning; a star marks those that are read again."""
    rows = [
        (
            f"`{name}`" + (" *" if name in LIVE else ""),
            f"`{written(field.default)}`" if written(field.default) else "none",
            # The page says once that times are in seconds.
            re.sub(", in seconds,?", "", field.description or ""),
        )
        for name, field in Settings.model_fields.items()
    ]
    return table(("setting", "default", "meaning"), rows)


def config_map() -> str:
    """Every setting with its meaning at its default, as a file that sets nothing yet."""
    lines = []
    for name, field in Settings.model_fields.items():
        value = (
            ""
            if field.default is None
            else yaml.safe_dump(_plain(field.default), default_flow_style=True, width=999)
        )
        lines += [
            f"    # {field.description}{' Takes effect at once.' if name in LIVE else ''}",
            f"    # {name}: {value}".splitlines()[0].rstrip(),
            "",
        ]
    return "\n".join(lines[:-1])


def _plain(value: object) -> object:
    """As JSON has it."""
    if isinstance(value, tuple):
        return list(value)
    return written(value) if isinstance(value, Enum) else value


# --- metrics ------------------------------------------------------------------------------------


def families() -> list[Metric]:
    """All metrics of ours, as a daemon that is put together but not started has them."""
    client = cast("ApiClient", object())
    informers = Informers(
        client, runtime=Runtime(), restore_signals=lambda: None, sweep_every_s=60.0
    )
    lease, timing = Lease("ns", "l"), Timing(duration_s=15, renew_s=10, retry_s=2)
    leadership = lead_by_lease(
        client, lease, timing, identity=None, caught_up=informers.synced, runtime=Runtime()
    )
    daemon = Daemon(Settings(), ConnectionPool(client), informers, asyncio.Event(), leadership)
    for reflector in informers.reflectors.values():
        reflector.heard_s = 0.0
    return [family for family in daemon.metrics.registry.collect() if family.name.startswith(OURS)]


def metric_name(family: Metric) -> str:
    """As Prometheus knows it."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> dict[str, list[str]]:
    """The values of each label; `le` is none of a user's."""
    found: dict[str, dict[str, None]] = {}
    for sample in family.samples:
        for name, value in sample.labels.items():
            if name != "le":
                found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items()}


def _told(labels: dict[str, list[str]]) -> str:
    texts = []
    for name, values in labels.items():
        fixed = name not in {"version", "python", "name", "reason"} and len(values) <= MOST_VALUES
        texts.append(f"`{name}`" + (f": {', '.join(values)}" if fixed else ""))
    return "; ".join(texts)


def _is_counted(family: Metric) -> bool:
    return family.type == "counter" and "part" in _labels(family)


def metrics() -> str:
    """Everything but the plain counters. The type of a counter is the end of its name."""
    rows = []
    for family in families():
        if _is_counted(family):
            continue

        notes = [] if family.type == "counter" else [family.type]
        notes += [labels] if (labels := _told(_labels(family))) else []
        rows.append((f"`{metric_name(family)}`", "; ".join(notes), family.documentation))

    return table(("metric", "type; labels", "meaning"), rows)


OWNERS = (
    "reflector",
    "store",
    "scheduler_names",
    "volumes",
    "operator",
    "binder",
    "preemption_writer",
    "recorder",
    "outbox",
    "lease",
)
"""What the names of plain counters begin with."""


def counters() -> str:
    """The names of what its owners count, by owner; the HELP text of each says what it counts.
    Raises StopIteration for a counter of an unknown owner.
    """
    names: dict[str, list[str]] = {}
    for family in families():
        if _is_counted(family):
            counted = family.name.removeprefix("gangsched_")
            owner = next(owner for owner in OWNERS if counted.startswith(f"{owner}_"))
            names.setdefault(owner, []).append(f"`{counted.removeprefix(f'{owner}_')}`")

    rows = [
        (f"`gangsched_{owner}_…_total`", ", ".join(counted)) for owner, counted in names.items()
    ]
    return table(("counters", "…"), rows)


# --- bounds -------------------------------------------------------------------------------------


def bounds() -> str:
    """The lists and maps of kinds with a type of their own that have a lower bound than `MANY`."""
    fields: dict[tuple[str, int], list[str]] = {}
    for make in RESOURCES.values():
        for place in places(make()):
            if place.most == MANY:
                continue

            kind = "all kinds" if place.path[0] == "metadata" else place.kind
            names = fields.setdefault((kind, place.most or 0), [])
            name = f"`{place}`"
            if name not in names:
                names.append(name)
    rows = [(kind, f"{most:,}", ", ".join(names)) for (kind, most), names in fields.items()]
    return table(("kind", "entries", "fields"), rows)


# --- files --------------------------------------------------------------------------------------

# --- what is said in each state -----------------------------------------------------------------


def waiting() -> str:
    """What is said of a pod and of its gang in each state, as a simulated cluster says it. Of a
    message of many sentences the first is shown, and the last where no other situation has it.
    """
    found = list(rows())
    last = Counter(
        sentences(text)[-1] for text in {text for _, _, *texts in found for text in texts}
    )

    def shown(text: str) -> str:
        first, *rest = sentences(text)
        if not rest:
            return text
        return f"{first} … {rest[-1] if last[rest[-1]] == 1 else ''}".strip()

    cells = [
        (state, situation, shown(of_pod), "the same" if of_gang == of_pod else shown(of_gang))
        for state, situation, of_pod, of_gang in found
    ]
    return table(("state", "situation", "the pod's condition", "its gang"), cells)


def sentences(text: str) -> list[str]:
    """The sentences of a message."""
    return re.split(r"(?<=\.) ", text)


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "metrics": metrics,
    "counters": counters,
    "config-map": config_map,
    "bounds": bounds,
    "waiting": waiting,
}
SCHEMA = ROOT / "docs" / "reference" / "kubectl-output.json"
"""The JSON schema of what `kubectl gangsched -o json` prints."""
FILES = (
    "docs/reference/settings.md",
    "docs/reference/metrics.md",
    "docs/reference/bounds.md",
    "tests/unit/state/reporting/waiting.md",
    "manifests/config.yaml",
)


def with_tables(text: str) -> str:
    """The text with every marked table as the code has it now. Raises KeyError for a table that
    nobody makes.
    """
    return _MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)


def marked() -> Iterator[tuple[str, str]]:
    """(file, table) of every table that is marked."""
    for file in FILES:
        yield from ((file, found[2]) for found in _MARKED.finditer((ROOT / file).read_text()))


def main() -> None:
    """Write the tables."""
    for file in FILES:
        path = ROOT / file
        path.write_text(with_tables(path.read_text()))
    SCHEMA.write_text(json.dumps(schema(), indent=2) + "\n")


if __name__ == "__main__":
    main()
