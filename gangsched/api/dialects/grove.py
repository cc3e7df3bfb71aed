"""PodGangs of `scheduler.grove.io`: each of their podgroups becomes a gang, and each set of
podgroups that must share a domain becomes a composite; all are in one tree (I9).

Invariant: the label `keys.GROVE_CLIQUE` assigns a pod to the podgroup of that name. Grove keeps a
scheduling gate on pods that are not in `podReferences`, and on pods of a scaled PodGang until its
base PodGang runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from gangsched.api import keys
from gangsched.api.dialects.spec import DialectSpec, PodMarks
from gangsched.api.problem import quoted
from gangsched.api.values import INT32_MAX, BadValue, parse_level
from gangsched.model.bounds import above
from gangsched.model.objects import PodGroup

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
MOST_PODGROUPS: Final = 128
"""As many as a tree may have gangs (I9)."""
READ_AT: Final = frozenset({keys.GROVE_CLIQUE})
"""See `pod_metadata.READ_AT`."""


def read_pod(gang_metadata: dict[str, str], marks: PodMarks) -> None:
    """Ignore the name of a podgroup without that of its PodGang."""
    if not marks.labels.get(keys.GROVE_GANG):
        gang_metadata.pop(keys.GROVE_CLIQUE, None)


class GroveSpec(DialectSpec):
    """The spec of a PodGang. Fields that may refuse the gang accept any type, so that a malformed
    field is reported and not ignored.
    """

    podgroups: Any = None
    topology_constraint: Any = None
    topology_constraint_group_configs: Any = None
    priority_class_name: str | None = None
    reuse_reservation_ref: Any = None

    def declared(self, pod_group: PodGroup, where: str) -> PodGroup:
        """Add one part for each podgroup. Problems that refuse the whole PodGang are repeated in
        every part; fields without effect are reported only in the first part.
        """
        minimums, invalid = self._minimums(where)
        not_used: list[str] = []
        of_whole = _levels(self.topology_constraint, f"topologyConstraint of {where}", invalid)
        of_parts = {
            name: _levels(clique, f"topologyConstraint of podgroup {name} of {where}", invalid)
            for name, (_, clique) in minimums.items()
        }
        together = self._add_configs(where, minimums, of_whole, of_parts, invalid)

        if self.priority_class_name:
            name = quoted(self.priority_class_name)
            not_used.append(
                f"priorityClassName {name} of {where} is not used: gangsched uses the priorities of"
                " its pods"
            )

        if self.reuse_reservation_ref:
            not_used.append(
                f"reuseReservationRef of {where} is not used: gangsched does not reuse the room of"
                " another PodGang"
            )

        beside = {name: n for n, (names, _) in enumerate(together) for name in names}
        # A podgroup without a minimum is in the tree only where it must share a domain with others.
        children = {
            name
            for name, (minimum, _) in minimums.items()
            if minimum != 0 or of_whole["required"] or name in beside
        }

        # A tree only where several podgroups wait for each other, or share a domain.
        root = pod_group.name if len(children) > 1 else ""
        parents = {name: f"{root}.together-{n}" for name, n in beside.items()}
        common = replace(pod_group, of_object=pod_group.name, invalid=tuple(invalid), speaks=False)
        parts: list[PodGroup] = []

        for name in sorted(
            minimums, key=lambda clique_name: (minimums[clique_name][0] == 0, clique_name)
        ):
            minimum = minimums[name][0]
            own = of_parts[name]
            is_child = name in children and bool(root)
            stated = {keys.PARENT[0]: parents.get(name, root)} if is_child else {}

            if preferred := [*own["preferred"], *of_whole["preferred"]]:
                stated[keys.PREFERRED_TOPOLOGY[0]] = preferred[0]

            part = replace(
                common,
                name=name,
                speaks=not parts,
                min_member=minimum,
                gang_metadata=_weakest(stated, pod_group),
                topology=_sorted(
                    own["required"] if is_child else own["required"] + of_whole["required"]
                ),
                tree_topology=(
                    _sorted(of_whole["required"]) if is_child and name not in parents else ()
                ),
                not_used=() if parts else tuple(not_used),
            )
            parts.append(part)

        for names, levels in together:
            part = replace(
                common,
                name=parents[names[0]],
                min_member=0,
                gang_metadata=_weakest({keys.PARENT[0]: root}, pod_group),
                topology=_sorted(levels),
                tree_topology=_sorted(of_whole["required"]),
            )
            parts.append(part)

        return replace(pod_group, invalid=tuple(invalid), parts=tuple(parts))

    def _add_configs(
        self,
        where: str,
        minimums: Mapping[str, tuple[int | None, Any]],
        of_whole: dict[str, list[str]],
        of_parts: Mapping[str, dict[str, list[str]]],
        invalid: list[str],
    ) -> list[tuple[list[str], list[str]]]:
        """Add the levels of each topologyConstraintGroupConfig to those of its only podgroup, or of
        the whole gang. Return the podgroups of each other one that requires levels, and these.
        """
        together: list[tuple[list[str], list[str]]] = []
        field = f"topologyConstraintGroupConfigs of {where}"

        configs = self.topology_constraint_group_configs
        if not isinstance(configs, list | None):
            invalid.append(f"{field} cannot be read: {quoted(configs)}")
            return together

        known_names: set[str] = set()
        for config in configs or ():
            names = config.get("podGroupNames") if isinstance(config, Mapping) else None
            names = (
                names
                if isinstance(names, list) and all(isinstance(name, str) for name in names)
                else []
            )
            if not names or not minimums.keys() >= set(names):
                invalid.append(f"{field} does not name podgroups of this PodGang: {quoted(config)}")
                continue

            levels = _levels(config.get("topologyConstraint"), field, invalid)
            if known_names & set(names) or len(set(names)) < len(names):
                invalid.append(f"{field} names a podgroup twice: {quoted(names)}")

            known_names |= set(names)
            # All podgroups: as if the PodGang itself stated it.
            if len(names) == len(minimums):
                of_whole["required"] += levels["required"]
                of_whole["preferred"] = levels["preferred"] + of_whole["preferred"]
            # A preferred level is tried for each gang alone.
            elif len(names) == 1 or not levels["required"]:
                for name in names:
                    of_parts[name]["required"] += levels["required"]
                    of_parts[name]["preferred"] += levels["preferred"]
            else:
                for name in names:
                    of_parts[name]["preferred"] += levels["preferred"]

                together.append((names, levels["required"]))

        return together

    def _minimums(self, where: str) -> tuple[dict[str, tuple[int | None, Any]], list[str]]:
        """Minimum and topologyConstraint of each podgroup by name; sentences about those that
        cannot be read.
        """
        minimums: dict[str, tuple[int | None, Any]] = {}
        if not isinstance(self.podgroups, list | None):
            return minimums, [
                f"spec.podgroups {quoted(self.podgroups)} of {where} is not a list: correct it"
            ]
        if len(self.podgroups or ()) > MOST_PODGROUPS:
            # None of them is made a gang: a tree has no more, and reading a thousand took 160 ms.
            return minimums, [
                above(f"spec.podgroups of {where}", len(self.podgroups or ()), MOST_PODGROUPS)
            ]

        invalid = []
        for entry in self.podgroups or ():
            name = entry.get("name") if isinstance(entry, Mapping) else None
            minimum = entry.get("minReplicas") if isinstance(entry, Mapping) else None

            if not isinstance(name, str) or not name or name in minimums:
                invalid.append(
                    f"a podgroup of {where} has no name, or the name of another one:"
                    f" {quoted(entry)}"
                )
                continue

            good = (
                isinstance(minimum, int)
                and not isinstance(minimum, bool)
                and 0 <= minimum <= INT32_MAX
            )
            if not good:
                invalid.append(
                    f"minReplicas {quoted(minimum)} of podgroup {name} of {where} is not a count:"
                    " correct it"
                )

            minimums[name] = minimum if good else None, entry.get("topologyConstraint")

        return minimums, invalid


def _levels(constraint: Any, where: str, invalid: list[str]) -> dict[str, list[str]]:
    """The levels of a topologyConstraint, required and preferred; adds to `invalid` why one cannot
    be read.
    """
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
            invalid.append(f"{where} names a level that is not a label key: {quoted(level)}")

    return levels


def _weakest(stated: Mapping[str, str], pod_group: PodGroup) -> keys.GangMetadata:
    """What fields state, as annotations that those of the object override."""
    return keys.pod_group_metadata({**stated, **dict(pod_group.gang_metadata)})


def _sorted(levels: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(levels)))
