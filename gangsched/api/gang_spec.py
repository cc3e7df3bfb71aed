"""What a gang is, from what its pods and its PodGroup say (semantics I2, I3).

Law: `gang_spec` never raises, for any text in any key; each value comes with its source, and each text that was not
taken as written becomes a `Problem` (E4). The order in which pods are given does not matter. Whether several gangs
agree to be one group (I4) is *not* decided here: that takes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from gangsched.api import keys
from gangsched.api.problem import Problem, bad_value, quoted
from gangsched.api.values import (
    BadValue,
    parse_allow_shared,
    parse_count,
    parse_gpu_product,
    parse_groups,
    parse_match_policy,
    parse_mode,
    parse_topology,
    parse_wait_time,
)
from gangsched.model.gang import MatchPolicy, Mode
from gangsched.model.gpu_policy import NO_CONSTRAINTS, PlacementConstraints
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.resources import ResourceVector

__all__ = ["GangDefaults", "GangRef", "GangSpec", "MatchPolicy", "Mode", "Problem", "gang_id", "gang_spec"]

T = TypeVar("T")

_DEFAULT: Final = "default"
_PODS_NAMED: Final = 5


class GangRef(NamedTuple):
    """The gang a pod belongs to; `native`: its PodGroup is the one of `scheduling.k8s.io`."""

    id: str
    needs_pod_group: bool
    native: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDefaults:
    """What an administrator set for values that nobody states."""

    wait_time_s: float = 600.0
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpec:
    """A gang's values.

    `total` is what a round expects, never below `min_member` (I3). `group` is sorted and holds `id`, unless
    `group_problem` says that the declared list leaves it out: then it is the list as declared, to be refused (I4).
    `waiting_for` is a sentence why the gang is uninitialised, None when it may be scheduled.
    `sources` are (value, where it comes from) for every value, in a fixed order.
    """

    id: str
    min_member: int | None
    total: int
    mode: Mode
    wait_time_s: float
    group: tuple[str, ...]
    match_policy: MatchPolicy
    min_resources: ResourceVector = ()
    constraints: PlacementConstraints = NO_CONSTRAINTS
    waiting_for: str | None = None
    pod_group_missing: bool = False
    group_problem: str | None = None
    sources: tuple[tuple[str, str], ...] = ()
    problems: tuple[Problem, ...] = ()


def gang_id(pod: Pod) -> GangRef | None:
    """The gang that the pod's metadata names, else its native group; None for a plain pod (I2)."""
    if not pod.gang_metadata and not pod.native_group:
        return None
    return _gang_ref(pod.namespace, pod.gang_metadata, pod.native_group)


@lru_cache(maxsize=65_536)
def _gang_ref(namespace: str, gang_metadata: keys.GangMetadata, native_group: str) -> GangRef | None:
    named = dict(gang_metadata)
    for identity in keys.IDENTITIES:
        if name := named.get(identity.key):
            return GangRef(f"{namespace}/{name}", identity.needs_pod_group)
    return GangRef(f"{namespace}/{native_group}", True, native=True) if native_group else None


def gang_spec(
    gang: str, declared: Sequence[Pod], pod_group: PodGroup | None, *, needs_pod_group: bool, defaults: GangDefaults
) -> GangSpec:
    """The values of gang `gang`; `declared` holds the oldest pod of each distinct `gang_metadata` among its members.

    Each value is the oldest pod's; if it states none, the PodGroup's; if that states none, that of the oldest pod which
    does; else the default. Pods that state another value than the one taken are named in a Problem.
    """
    reader = _Reader(declared, pod_group)
    spec_min = pod_group.min_member if pod_group else None
    spec_wait_s = pod_group.schedule_timeout_s if pod_group else None
    min_member = reader.value("min", keys.MIN, parse_count, str, spec=spec_min, field="minMember")
    total = reader.value("total", keys.TOTAL, parse_count, str, default=min_member or 0, default_source="min")
    if min_member is not None and total is not None and total < min_member:
        reader.below_min(total, min_member)
        total = min_member
    mode = reader.value("mode", keys.MODE, parse_mode, str, default=Mode.STRICT)
    wait_time_s = reader.value(
        "wait time",
        keys.WAIT_TIME,
        parse_wait_time,
        _seconds,
        spec=spec_wait_s,
        field="scheduleTimeoutSeconds",
        default=defaults.wait_time_s,
    )
    alone: tuple[str, ...] = (gang,)
    group = reader.value("groups", keys.GROUPS, parse_groups, _listed, default=alone) or alone
    policy = reader.value("match policy", keys.MATCH_POLICY, parse_match_policy, str, default=defaults.match_policy)
    min_resources = pod_group.min_resources if pod_group else ()
    reader.sources["minResources"] = reader.spec_source("minResources") if min_resources else "none"
    return GangSpec(
        id=gang,
        min_member=min_member,
        total=total or 0,
        mode=mode or Mode.STRICT,
        wait_time_s=wait_time_s or defaults.wait_time_s,
        group=group,
        match_policy=policy or defaults.match_policy,
        min_resources=min_resources,
        constraints=_wishes(reader),
        waiting_for=_waiting_for(gang, min_member, missing=needs_pod_group and pod_group is None),
        pod_group_missing=needs_pod_group and pod_group is None,
        group_problem=None if gang in group else _group_problem(gang, group, reader.sources["groups"]),
        sources=tuple(reader.sources.items()),
        problems=tuple(reader.problems),
    )


def _wishes(reader: _Reader) -> PlacementConstraints:
    """What the gang asks of the GPU policy."""
    shared = reader.value("shared GPUs", keys.ALLOW_SHARED_GPUS, parse_allow_shared, str)
    product = reader.value("GPU product", keys.GPU_PRODUCT, parse_gpu_product, str)
    topology = reader.value("topology", keys.TOPOLOGY, parse_topology, str)
    return PlacementConstraints(bool(shared), bool(product), topology or "")


def _waiting_for(gang: str, min_member: int | None, *, missing: bool) -> str | None:
    if missing:
        return f"PodGroup {_cut(gang)} does not exist"
    if min_member is None:
        return (
            f"no valid minimum is given for gang {_cut(gang)}: set spec.minMember of its PodGroup, "
            f"or {keys.MIN[0]} on its pods"
        )
    return None


def _group_problem(gang: str, group: tuple[str, ...], source: str) -> str:
    return f"{source} lists {_listed(group)} but not {_cut(gang)} itself"


class _Statement(NamedTuple):
    """A value as read from one key of one object; `pod` is "" for the PodGroup."""

    value: object
    key: str
    text: str
    source: str
    pod: str = ""


class _Bad(NamedTuple):
    key: str
    text: str
    why: str
    where: str
    pod: str


class _Reader:
    """Reads values one by one, noting the source of each and what was wrong on the way."""

    def __init__(self, declared: Sequence[Pod], pod_group: PodGroup | None) -> None:
        pods = sorted(declared, key=lambda pod: (pod.creation_s, pod.name, pod.uid))
        self._pods = [(pod.key, dict(pod.gang_metadata)) for pod in pods]
        self._pod_group = pod_group
        self._pod_group_marks = dict(pod_group.gang_metadata) if pod_group else {}
        self.sources: dict[str, str] = {}
        self.problems: list[Problem] = []
        if pod_group:
            self.problems += [Problem("spec", "", "", text) for text in pod_group.problems]

    def value(
        self,
        name: str,
        names: tuple[str, ...],
        parse: Callable[[str], T | None],
        show: Callable[[T], str],
        *,
        spec: T | None = None,
        field: str = "",
        default: T | None = None,
        default_source: str = _DEFAULT,
    ) -> T | None:
        """The value under the first of the keys `names` that is present and valid, by the rule of `gang_spec`.

        `parse` raises BadValue, or returns None for a text that counts as absent. `spec` is the value of the PodGroup's
        `spec.field`, weaker than its annotations.
        """
        bad: dict[tuple[str, str], _Bad] = {}
        stated = [
            self._read(gang_metadata, names, parse, bad, where=f"pod {pod}", pod=pod)
            for pod, gang_metadata in self._pods
        ]
        of_group = self._read(self._pod_group_marks, names, parse, bad, where=self._where(), pod="")
        if of_group is None and spec is not None:
            of_group = _Statement(spec, f"spec.{field}", "", self.spec_source(field))
        order = [*stated[:1], of_group, *stated[1:]]
        winner = next((statement for statement in order if statement is not None), None)
        taken: T | None = default if winner is None else winner.value  # type: ignore[assignment]  # parse made it
        source = default_source if winner is None else winner.source
        self.sources[name] = source if taken is not None else "none"
        used = "no value" if taken is None else f"{show(taken)} ({source})"
        self.problems += [
            bad_value(key=found.key, value=found.text, why=found.why, used=used, where=found.where, pod=found.pod)
            for found in bad.values()
        ]
        others = [statement for statement in stated if statement is not None and statement.value != taken]
        if others:
            self.problems.append(self._disagreement(others, used))
        return taken

    def below_min(self, total: int, min_member: int) -> None:
        """Note a total below the minimum."""
        source = self.sources["total"]
        used = f"{min_member} (min)"
        text = f"total-number {total} ({source}) is below the gang's minimum; {used} is used instead."
        self.problems.append(Problem(keys.TOTAL[0], quoted(str(total)), used, text))
        self.sources["total"] = "min"

    def spec_source(self, field: str) -> str:
        """Where a value of the PodGroup's spec comes from."""
        return f"spec.{field} of {self._where()}"

    def _where(self) -> str:
        return f"PodGroup {_cut(self._pod_group.id)}" if self._pod_group else "PodGroup"

    def _read(
        self,
        gang_metadata: dict[str, str],
        names: tuple[str, ...],
        parse: Callable[[str], T | None],
        bad: dict[tuple[str, str], _Bad],
        *,
        where: str,
        pod: str,
    ) -> _Statement | None:
        """The first valid statement among `names`; a bad text goes to `bad`, once however many pods carry it."""
        for key in names:
            text = gang_metadata.get(key)
            if text is None:
                continue
            try:
                value = parse(text)
            except BadValue as error:
                bad.setdefault((key, text), _Bad(key, text, str(error), where, pod))
                continue
            if value is not None:
                return _Statement(value, key, text, f"{key} of {where}", pod)
        return None

    def _disagreement(self, others: Sequence[_Statement], used: str) -> Problem:
        first = others[0]
        named = ", ".join(other.pod for other in others[:_PODS_NAMED])
        more = f" and {len(others) - _PODS_NAMED} more" if len(others) > _PODS_NAMED else ""
        text = (
            f"Members of one gang differ in {first.key}: {named}{more} give {quoted(first.text)}; "
            f"the oldest member decides, {used} is used instead."
        )
        return Problem(first.key, quoted(first.text), used, text, first.pod)


def _seconds(value: float) -> str:
    return f"{value:g}s"


def _listed(ids: tuple[str, ...]) -> str:
    return quoted(", ".join(ids[:10]))


def _cut(gang: str) -> str:
    return gang if len(gang) <= 320 else gang[:320] + "…"
