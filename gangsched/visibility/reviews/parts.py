"""The parts of a reviewed tree, each with the plan's decision: whether it fits, and otherwise what
it lacks.

Invariant: read-only, from one plan; node labels are for users who may list nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from gangsched.core.tree_choices import TreeParts
from gangsched.core.work import Work
from gangsched.model.gang import Group
from gangsched.model.parts import in_gangs, whole_children
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Snapshot
from gangsched.model.tree import Composite, Part, gangs_of, part_id, starts_in_parts
from gangsched.sentences import say
from gangsched.visibility.ports import Json


def parts_of(
    group: Group,
    verdict: Verdict,
    nodes: Mapping[str, str],
    snapshot: Snapshot | None,
    shown: Callable[[str], str],
) -> list[Json]:
    """The parts of a group that start one by one, parents before their children; of what starts in
    one round, the answer itself says all.

    `nodes` are the nodes of placed pods by uid, and `shown` adapts a sentence to the user, who may
    see labels of nodes if there is a `snapshot`.
    """
    root = group.root
    if not starts_in_parts(root):
        return []

    return list(_Parts(group, verdict, nodes, snapshot, shown).below(root, ""))


class _Parts:
    def __init__(
        self,
        group: Group,
        verdict: Verdict,
        nodes: Mapping[str, str],
        snapshot: Snapshot | None,
        shown: Callable[[str], str],
    ) -> None:
        self._gangs = {gang.id: gang for gang in group.gangs}
        self._tree = TreeParts(group, Work())
        self._verdict = verdict
        self._snapshot = snapshot
        self._shown = shown
        self._nodes = {
            gang.id: [nodes[pod.uid] for pod in gang.pending if pod.uid in nodes]
            for gang in group.gangs
        }

    def below(self, part: Part, parent: str) -> Iterator[Json]:
        """The part itself, and all below it."""
        name = _name(part_id(part))
        row: Json = {"name": name}
        if parent:
            row["parent"] = parent

        if isinstance(part, str):
            yield row | self._gang(part)
            return

        yield row | self._composite(part)
        for child in part.children:
            yield from self.below(child, name)

    def _gang(self, gang_id: str) -> Json:
        gang = self._gangs[gang_id]
        told = self._verdict.of_gang(gang_id)
        placed = self._nodes[gang_id]
        found: Json = {"min": gang.min_member, "ready": gang.quorum, "placed": len(placed)}

        if self._fits(gang_id):
            return found | {"fits": True, **self._domain(gang.constraints.topology, placed)}

        # The gang itself would fit, but its tree does not start.
        reason = Reason.WAITING_FOR_GANG if told.reason is Reason.SCHEDULED else told.reason
        return found | {
            "fits": False,
            "reason": reason.value,
            "message": self._shown(say(told).text),
        }

    def _composite(self, part: Composite) -> Json:
        ready = 0
        for child in part.children:
            ready += self._tree.unready(child) is None

        root, counts = in_gangs(part, self._fits)
        placed = len(whole_children(root, part, counts))
        found: Json = {"minChildren": part.min_children, "ready": ready, "placed": placed}

        if placed < part.min_children or not placed:
            return found | {"fits": False}

        nodes = []
        for gang in gangs_of(part):
            nodes += self._nodes[gang]

        return found | {"fits": True, **self._domain(part.topology, nodes)}

    def _fits(self, gang_id: str) -> bool:
        return len(self._nodes[gang_id]) >= max(1, self._gangs[gang_id].min_member)

    def _domain(self, keys: tuple[str, ...], nodes: list[str]) -> Json:
        """The domains that hold the part, one of each level that it requires."""
        if self._snapshot is None or not keys:
            return {}

        table = self._snapshot.table
        labels = []
        for node in nodes:
            labels.append(table.nodes[table.index[node]].labels)

        return {
            "domain": ", ".join(
                f"{key}={Counter(label.get(key, '') for label in labels).most_common(1)[0][0]}"
                for key in keys
            )
        }


def _name(part: str) -> str:
    return part.partition("/")[2]
