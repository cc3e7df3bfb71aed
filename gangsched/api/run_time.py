"""How long a pod is expected to run, as its owner declared it (semantics H1).

Invariant: the first valid declaration counts; each invalid declaration before it becomes a
`Problem` (E4). The deadline that the kubelet enforces limits the declared run time, or counts alone
if none is declared. Without a valid declaration the run time is `math.inf`: unknown. Whether the
declared run time is correct is not checked here (H2, H11).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from gangsched.api import keys
from gangsched.api.problem import Problem, bad_value
from gangsched.api.values import BadValue, parse_count, parse_duration

DEFAULT: Final = "default_expected_runtime_s"
_ON_PODS: Final = (keys.SLURM_TIME_LIMIT, keys.KUEUE_MAX_EXEC_TIME)


PROBLEMS_TOLD: Final = 5
"""Of a gang: each member may state another bad text, and one condition has to hold them all."""


class RunTime(NamedTuple):
    """An expected run time in seconds, `math.inf` if unknown, and its source: key, field or
    setting, "" for none.
    """

    seconds: float
    source: str = ""
    problems: tuple[Problem, ...] = ()


UNKNOWN: Final = RunTime(math.inf)


def run_time(
    stated: keys.GangMetadata,
    of_group: str | None = None,
    *,
    default_s: float | None = None,
    where: str = "",
    group: str = "",
) -> RunTime:
    """The run time of a pod, from its `run_time_metadata` and the annotation of its PodGroup (None
    for none).

    Problems name the pod `where` and the PodGroup `group`.
    """
    bad: list[tuple[str, str, BadValue, str]] = []
    pod_run_time = UNKNOWN

    of_pod = dict(stated)
    for key, text, parse, place in _statements(of_pod, of_group, where, group):
        try:
            pod_run_time = RunTime(_positive(text, parse), key)
            break
        except BadValue as error:
            bad.append((key, text, error, place))

    if not pod_run_time.source and default_s is not None:
        pod_run_time = RunTime(default_s, DEFAULT)

    if (deadline := of_pod.get(keys.DEADLINE)) is not None:
        # the API server refuses a negative one, and H2 would never come to an end
        most_s = max(0.0, float(deadline))
        # A deadline is enforced, whatever the owner expects.
        if most_s < pod_run_time.seconds:
            pod_run_time = RunTime(most_s, keys.DEADLINE)

    used = (
        f"the {pod_run_time.seconds:g} s of {pod_run_time.source}"
        if pod_run_time.source
        else "an unknown run time"
    )
    problems = tuple(
        bad_value(key=key, value=text, why=str(why), used=used, where=place)
        for key, text, why, place in bad
    )
    return pod_run_time._replace(problems=problems)


@lru_cache(maxsize=1_024)
def run_time_s(stated: keys.GangMetadata, of_group: str | None, default_s: float | None) -> float:
    """The seconds of `run_time`, cached because most pods have the same declarations."""
    return run_time(stated, of_group, default_s=default_s).seconds


def enforced(stated: keys.GangMetadata) -> keys.GangMetadata:
    """The declarations of limits that the kubelet enforces."""
    return tuple(pair for pair in stated if pair[0] == keys.DEADLINE)


def longest(members: Iterable[RunTime]) -> RunTime:
    """Run time of the member that runs longest, and the first problems. It is unknown if it is
    unknown for any member, or if there are no members.
    """
    all_of_them = tuple(members)
    # Unknown is infinity, so it is the maximum where one member has none.
    largest = max(all_of_them, key=lambda member: member.seconds, default=UNKNOWN)
    problems = dict.fromkeys(problem for member in all_of_them for problem in member.problems)

    return largest._replace(problems=tuple(problems)[:PROBLEMS_TOLD])


def _statements(
    of_pod: dict[str, str],
    of_group: str | None,
    where: str,
    group: str,
) -> Iterator[tuple[str, str, Callable[[str], float], str]]:
    """(key, text, grammar, place) of what is stated, in the order of precedence."""
    if keys.EXPECTED_RUNTIME in of_pod:
        yield keys.EXPECTED_RUNTIME, of_pod[keys.EXPECTED_RUNTIME], parse_duration, where

    if of_group is not None:
        yield keys.EXPECTED_RUNTIME, of_group, parse_duration, group

    for key in _ON_PODS:
        if key in of_pod:
            yield key, of_pod[key], _minutes if key == keys.SLURM_TIME_LIMIT else parse_count, where


def _minutes(text: str) -> float:
    return 60.0 * parse_count(text)


def _positive(text: str, parse: Callable[[str], float]) -> float:
    if len(text) > keys.SHORT:
        raise BadValue(f"is longer than {keys.SHORT} characters")

    seconds = parse(text)
    if seconds <= 0:
        raise BadValue("is not positive")

    return seconds
