"""PodGangs of `scheduler.grove.io`: a gang for each of their podgroups, which start together (I4).

Invariant: pods belong to a podgroup by the label `keys.GROVE_CLIQUE`, whose value is the podgroup's name; Grove gates
them until `podReferences` has them. What one podgroup requires of topology would bind all of them, so it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gangsched.api import keys
from gangsched.api.dialects.spec import Declared, DialectSpec
from gangsched.api.problem import quoted
from gangsched.api.values import INT32_MAX, BadValue, parse_groups, parse_level

PHASES: Final = {
    "Pending": "Pending",
    "PreScheduling": "Pending",
    "Scheduling": "Starting",
    "Scheduled": "Starting",
    "Running": "Running",
    "Finished": "Running",
    "Failed": "Pending",
    "Unknown": "Pending",
}
"""Grove's phase for each of ours."""
KEEP: Final = "gangsched cannot keep a part of a gang in a domain yet: state it for the whole PodGang, or remove it"


class GroveSpec(DialectSpec):
    """Fields that may refuse the gang are read as they are: one that cannot be understood must not be left out."""

    podgroups: Any = None
    topology_constraint: Any = None
    topology_constraint_group_configs: Any = None
    priority_class_name: str | None = None
    reuse_reservation_ref: Any = None

    def declared(self, where: str) -> Declared:
        """Return a part for each podgroup; problems of the whole gang are reported for every part, or by the first."""
        minimums, invalid = self._minimums(where)
        unsupported: list[str] = []
        not_used: list[str] = []
        whole = _levels(self.topology_constraint, f"topologyConstraint of {where}", invalid)
        of_parts = {
            name: _levels(of, f"topologyConstraint of podgroup {name} of {where}", invalid)
            for name, (_, of) in minimums.items()
        }
        if len(of_parts) == 1:  # then it is the whole
            (only,) = of_parts.values()
            whole["required"] += only["required"]
            whole["preferred"] = whole["preferred"] or only["preferred"]
        else:
            for name, levels in of_parts.items():
                if levels["required"]:
                    unsupported.append(f"topologyConstraint of podgroup {name} of {where} is required, and {KEEP}")
        if self.topology_constraint_group_configs:
            unsupported.append(f"topologyConstraintGroupConfigs of {where} asks for domains of parts, and {KEEP}")
        if self.priority_class_name:
            name = quoted(self.priority_class_name)
            not_used.append(f"priorityClassName {name} of {where} is not used: the priorities of its pods decide")
        if self.reuse_reservation_ref:
            not_used.append(f"reuseReservationRef of {where} is not used: gangsched keeps no room of another PodGang")
        namespace = where.split(" ")[1].partition("/")[0]
        # A podgroup without a minimum is not waited for, nor does it wait.
        group = json.dumps(sorted(f"{namespace}/{name}" for name, (minimum, _) in minimums.items() if minimum != 0))
        if not _is_group(group):
            unsupported.append(f"{where} has {len(minimums)} podgroups, more than a gang group may have")
        common = Declared(
            topology=tuple(sorted(set(whole["required"]))), unsupported=tuple(unsupported), invalid=tuple(invalid)
        )
        parts: dict[str, Declared] = {}
        for name in sorted(minimums, key=lambda each: (minimums[each][0] == 0, each)):
            minimum = minimums[name][0]
            stated = {keys.GROUPS[0]: group} if minimum != 0 else {}
            if preferred := [*of_parts[name]["preferred"], *whole["preferred"]]:
                stated[keys.PREFERRED_TOPOLOGY[0]] = preferred[0]
            parts[name] = replace(
                common, min_member=minimum, gang_metadata=stated, not_used=() if parts else tuple(not_used)
            )
        return replace(common, parts=parts)

    def _minimums(self, where: str) -> tuple[dict[str, tuple[int | None, Any]], list[str]]:
        """Minimum and topologyConstraint of each podgroup by name; sentences about those that cannot be read."""
        found: dict[str, tuple[int | None, Any]] = {}
        if not isinstance(self.podgroups, list | None):
            return found, [f"spec.podgroups {quoted(self.podgroups)} of {where} is not a list: correct it"]
        invalid = []
        for entry in self.podgroups or ():
            name = entry.get("name") if isinstance(entry, Mapping) else None
            minimum = entry.get("minReplicas") if isinstance(entry, Mapping) else None
            if not isinstance(name, str) or not name or name in found:
                invalid.append(f"a podgroup of {where} has no name of its own: {quoted(entry)}")
                continue
            good = isinstance(minimum, int) and not isinstance(minimum, bool) and 0 <= minimum <= INT32_MAX
            if not good:
                invalid.append(
                    f"minReplicas {quoted(minimum)} of podgroup {name} of {where} is not a count: correct it"
                )
            found[name] = minimum if good else None, entry.get("topologyConstraint")
        return found, invalid


def _levels(constraint: Any, where: str, invalid: list[str]) -> dict[str, list[str]]:
    """The levels of a topologyConstraint, required and preferred; adds to `invalid` why one cannot be read."""
    levels: dict[str, list[str]] = {"required": [], "preferred": []}
    pack = constraint.get("packConstraint") if isinstance(constraint, Mapping) else constraint
    if pack is None:
        return levels
    if not isinstance(pack, Mapping):
        invalid.append(f"{where} cannot be read: {quoted(constraint)}")
        return levels
    for name, into in levels.items():
        level = pack.get(name)
        if level is None or level == "":
            continue
        try:
            into.append(str(parse_level(level if isinstance(level, str) else " ")))
        except BadValue:
            invalid.append(f"{where} names no label of nodes: {quoted(level)}")
    return levels


def _is_group(text: str) -> bool:
    """Whether gangs may list this group (I4)."""
    try:
        return not keys.is_too_long(text) and parse_groups(text) is not None
    except BadValue:
        return False
