"""How long a pod is expected to run, from what its owner states (H1 of the backfill design).

Law: the first statement that is valid counts; each one before it that is not becomes a `Problem` (E4). The deadline
that the kubelet enforces caps it, or stands alone. Nothing valid is `math.inf`: unknown.

Not yet read from pods: `kube.read` keeps neither these keys nor `activeDeadlineSeconds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from gangsched.api import keys
from gangsched.api.problem import Problem, bad_value
from gangsched.api.values import BadValue, parse_count, parse_duration

DEADLINE: Final = "activeDeadlineSeconds"
DEFAULT: Final = "default_expected_runtime_s"


class RunTime(NamedTuple):
    """Seconds, `math.inf` for unknown, and the key, field or setting that says so, "" for none."""

    seconds: float
    source: str = ""
    problems: tuple[Problem, ...] = ()


def run_time(
    pod: Mapping[str, str],
    pod_group: Mapping[str, str],
    *,
    deadline_s: int | None = None,
    default_s: float | None = None,
    where: str,
) -> RunTime:
    """The run time of a pod from its labels and annotations and those of its PodGroup; `where` is said in problems."""
    bad: list[tuple[str, str, BadValue]] = []
    found = RunTime(math.inf)
    for key, text, parse in _stated(pod, pod_group):
        try:
            found = RunTime(_positive(parse(text)), key)
            break
        except BadValue as error:
            bad.append((key, text, error))
    if not found.source and default_s is not None:
        found = RunTime(default_s, DEFAULT)
    if deadline_s is not None and deadline_s < found.seconds:
        found = RunTime(float(deadline_s), DEADLINE)
    used = f"the {found.seconds:g} s of {found.source}" if found.source else "an unknown run time"
    problems = tuple(bad_value(key=key, value=text, why=str(why), used=used, where=where) for key, text, why in bad)
    return found._replace(problems=problems)


def longest(members: Iterable[RunTime]) -> float:
    """The run time of a group: its longest member's, unknown if one is, or if there is none."""
    return max((member.seconds for member in members), default=math.inf)


def _stated(pod: Mapping[str, str], pod_group: Mapping[str, str]) -> Iterator[tuple[str, str, Callable[[str], float]]]:
    """(key, text, grammar) of what is stated, in the order of precedence."""
    for says in (pod, pod_group):
        if keys.EXPECTED_RUNTIME in says:
            yield keys.EXPECTED_RUNTIME, says[keys.EXPECTED_RUNTIME], parse_duration
    if keys.SLURM_TIME_LIMIT in pod:
        yield keys.SLURM_TIME_LIMIT, pod[keys.SLURM_TIME_LIMIT], lambda text: 60.0 * parse_count(text)
    if keys.KUEUE_MAX_EXEC_TIME in pod:
        yield keys.KUEUE_MAX_EXEC_TIME, pod[keys.KUEUE_MAX_EXEC_TIME], parse_count


def _positive(seconds: float) -> float:
    if seconds <= 0:
        raise BadValue("is not more than 0")
    return seconds
