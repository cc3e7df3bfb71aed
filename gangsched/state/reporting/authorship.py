"""Whether gangsched wrote the status of a PodGroup, which is all that a restarted process knows of
an object without pods (semantics E3).

Invariant: pure; an object that anybody else may have reported on is not ours.
"""

from __future__ import annotations

import re
from typing import Final

from gangsched.api import keys
from gangsched.api.podgroup import Condition, scheduled_condition, stored_conditions
from gangsched.model.objects import PodGroup
from gangsched.model.reasons import GangReason, Reason

OUR_GROUPS: Final = frozenset({keys.X_K8S, keys.SIGS})
"""API groups of which nobody else writes the condition `Scheduled`."""
OUR_REASONS: Final = frozenset(each.value for kind in (Reason, GangReason) for each in kind)
OUR_MESSAGE: Final = re.compile(r"\d+ (of \d+ )?members? (is|are|has|have|was|were) ")
"""How messages about members begin, where other schedulers use the same type and reasons."""


def is_reported(pod_group: PodGroup) -> bool:
    """Whether the stored status of a PodGroup is a report of gangsched."""
    kind = scheduled_condition(pod_group.api_group, pod_group.version)
    conditions = stored_conditions(pod_group.status)
    stored = next((condition for condition in conditions if condition.type == kind), None)
    if stored is None or stored.reason not in OUR_REASONS:
        return False

    return pod_group.api_group in OUR_GROUPS or _is_our_message(stored)


def _is_our_message(condition: Condition) -> bool:
    return OUR_MESSAGE.match(condition.message) is not None
