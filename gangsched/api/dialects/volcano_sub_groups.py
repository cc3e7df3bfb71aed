"""`subGroupPolicy` of Volcano's PodGroups: each entry divides the pods that it selects by the
values of labels.

Invariant: an entry is either read in full, or refuses the gang with a message about its error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from gangsched.api.problem import quoted
from gangsched.api.sub_groups import SEPARATOR
from gangsched.api.values import INT32_MAX, LABEL_KEY, BadValue, parse_parent
from gangsched.model.inter_pod import Requirement, Selector
from gangsched.model.objects import SubGroups

MOST_ENTRIES: Final = 32
MOST_VALUES: Final = 1_024
"""Requirements of all entries and their values: each pod of the PodGroup is compared with all of
them.
"""
OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
HYPER_NODES: Final = "gangsched does not support HyperNodes"


@dataclass(slots=True)
class Read:
    """The entries of `subGroupPolicy`, and messages about its errors."""

    sub_groups: tuple[SubGroups, ...] = ()
    invalid: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    not_used: list[str] = field(default_factory=list)


def read_sub_groups(policy: Sequence[Any], where: str, min_member: int) -> Read:
    """Read the entries of a policy. `where` names the PodGroup, whose minimum is `min_member`."""
    read = Read()
    path = f"subGroupPolicy of {where}"

    if len(policy) > MOST_ENTRIES:
        read.invalid.append(
            f"{path} has {len(policy)} entries, and at most {MOST_ENTRIES} are supported:"
            " remove some"
        )
        return read

    readable = [
        parsed
        for number, entry in enumerate(policy)
        if (parsed := _entry(entry, number, where, read)) is not None
    ]
    names = [sub_groups.name for sub_groups in readable]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        read.invalid.append(
            f"{path} has two entries with the name {quoted(duplicate.rpartition(SEPARATOR)[2])}:"
            " rename one"
        )

    if (
        sum(
            1 + len(requirement.values)
            for entry in readable
            for requirement in entry.selector or ()
        )
        > MOST_VALUES
    ):
        read.invalid.append(
            f"the label selectors in {path} have more than {MOST_VALUES} requirements and values"
        )

    needed = sum(sub_groups.size * sub_groups.min_groups for sub_groups in readable)
    if needed < min_member and len(readable) == 1:
        groups = -(-min_member // readable[0].size)  # so many sub groups have minMember pods
        readable = [msgspec.structs.replace(readable[0], min_groups=groups)]
    elif needed < min_member and readable:
        read.unsupported.append(
            f"the sub groups that {path} requires have {needed} pods, fewer than minMember"
            f" {min_member}: gangsched cannot choose an entry for the others; set minSubGroups for"
            f" {min_member} pods, or lower minMember"
        )

    if not read.invalid:
        read.sub_groups = tuple(readable)

    return read


def network_topology(value: Any, path: str, where: str, read: Read) -> None:
    """Add the problems of a networkTopology to `read`: required HyperNodes refuse the gang,
    preferred HyperNodes are ignored.
    """
    if value is None:
        return

    if not isinstance(value, dict):
        read.invalid.append(
            f"spec.{path} {quoted(value)} of {where} is not an object: correct or remove it"
        )
    elif value.get("mode") == "soft":
        read.not_used.append(
            f"{path} of {where} is ignored: it is only a preference, and {HYPER_NODES}"
        )
    else:  # "hard" is the default
        read.unsupported.append(
            f"{path} of {where} asks for HyperNodes, which gangsched does not support: remove it,"
            " and set gangsched.dev/topology to a node label"
        )


def _entry(entry: Any, number: int, where: str, read: Read) -> SubGroups | None:
    """One entry; None, and why in `read`, if it cannot be read."""
    path = f"subGroupPolicy[{number}]"
    if not isinstance(entry, Mapping):
        read.invalid.append(f"spec.{path} {quoted(entry)} of {where} is not an object: correct it")
        return None

    network_topology(entry.get("networkTopology"), f"{path}.networkTopology", where, read)
    try:
        name = _name(entry.get("name"), number)
        return SubGroups(
            name=f"{where.rpartition('/')[2]}{SEPARATOR}{name}",
            selector=_selector(entry.get("labelSelector")),
            match_label_keys=_label_keys(entry.get("matchLabelKeys")),
            size=_count(entry, "subGroupSize", 1),
            min_groups=_count(entry, "minSubGroups", 0),
        )
    except BadValue as bad:
        read.invalid.append(f"spec.{path} of {where}: {bad}")
        return None


def _name(stated: Any, number: int) -> str:
    """The name of an entry, else its number."""
    if stated is None or stated == "":
        return str(number)

    try:
        return str(parse_parent(stated if isinstance(stated, str) else " "))
    except BadValue as bad:
        raise BadValue(f"name {quoted(stated)} {bad}") from None


def _count(entry: Mapping[str, Any], key: str, default: int) -> int:
    """A number of at least `default`, which is also what counts where there is none."""
    stated = entry.get(key)
    if stated is None:
        return default
    if type(stated) is not int or not default <= stated <= INT32_MAX:
        raise BadValue(f"{key} {quoted(stated)} is not a number from {default} to {INT32_MAX}")

    return stated


def _label_keys(stated: Any) -> tuple[str, ...]:
    if stated is None:
        return ()
    if not isinstance(stated, list) or not all(
        isinstance(key, str) and LABEL_KEY.fullmatch(key) for key in stated
    ):
        raise BadValue(f"matchLabelKeys {quoted(stated)} is not a list of label keys")

    return tuple(dict.fromkeys(stated))


def _selector(stated: Any) -> Selector:
    """A label selector as in metav1; none selects no pods, which nobody can mean."""
    if stated is None:
        raise BadValue("labelSelector is missing; an empty one, {}, selects all pods")
    if not isinstance(stated, Mapping):
        raise BadValue(
            f"labelSelector {quoted(stated)} is not a label selector; an empty one, {{}}, selects"
            " all pods"
        )
    if unknown := stated.keys() - {"matchLabels", "matchExpressions"}:
        raise BadValue(f"labelSelector has the unknown field {quoted(min(map(str, unknown)))}")

    labels = stated.get("matchLabels") or {}
    expressions = stated.get("matchExpressions") or []

    if not isinstance(labels, Mapping) or not all(
        isinstance(text, str) for pair in labels.items() for text in pair
    ):
        raise BadValue(f"matchLabels {quoted(labels)} are not labels")
    if not isinstance(expressions, list):
        raise BadValue(f"matchExpressions {quoted(expressions)} is not a list")

    equal = [Requirement(key, "In", (value,)) for key, value in sorted(labels.items())]
    return (*equal, *map(_requirement, expressions))


def _requirement(stated: Any) -> Requirement:
    requirement = stated if isinstance(stated, Mapping) else {}
    key = requirement.get("key")
    operator = requirement.get("operator")
    values = requirement.get("values") or []

    is_read = isinstance(key, str) and operator in OPERATORS and isinstance(values, list)
    if not is_read or not all(isinstance(value, str) for value in values):
        raise BadValue(f"{quoted(stated)} in matchExpressions is not a requirement")
    if bool(values) != (operator in {"In", "NotIn"}):
        raise BadValue(
            f"{quoted(stated)} in matchExpressions has {'' if values else 'no '}values with"
            f" {operator}"
        )

    return Requirement(str(key), str(operator), tuple(values))
