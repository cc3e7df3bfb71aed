"""The gang that a pod is in: the one that it names, a sub group of that, its owner's, or none
(semantics I2, O1).

Invariant: pods that must change their gang because an object or a namespace changed do so a bounded
number at a time.
"""

from __future__ import annotations

from gangsched.api.gang_identity import gang_id
from gangsched.model.gang import PLAIN
from gangsched.model.objects import Pod
from gangsched.model.owners import OwnerGangs
from gangsched.state.divided_pods import SubGroupGangs
from gangsched.state.groups import Registry
from gangsched.state.owner_gangs import OwnerGangRegister
from gangsched.state.rule_set import Rules

NAMED = ".named"
"""The end of the id of a gang whose pods name that of an owner."""


class PodGangs:
    """Assigns pods to gangs."""

    def __init__(self, registry: Registry, rules: Rules) -> None:
        self.sub_groups = SubGroupGangs(registry)
        self.owners = OwnerGangRegister(registry, rules.owner_gangs)
        self._names = rules.scheduler_names

    def gang_of(self, pod: Pod, now_s: float) -> tuple[str, bool]:
        """(the gang a pod is of, whether it is a plain pod's); "" for one that is of none."""
        owners = self.owners
        asking = owners.asking(pod.namespace)
        mark = gang_id(pod, asking)

        if mark is not None and not mark.of_owner:
            owners.left(pod.uid)
            gang = self.sub_groups.gang_of(pod, mark)
            # Else whoever names the gang of an owner would count as one of its pods.
            return f"{gang}{NAMED}" if owners.is_of_owner(gang) else gang, False

        # Plain pods that run are no gangs: 50,000 of them would be as many records.
        is_ours = pod.scheduler_name in self._names
        is_waiting = is_ours and pod.live and not pod.node_name
        gang = ""

        if mark is None:
            asks = asking is OwnerGangs.ALL or owners.knows(pod.uid)
            if asks or pod.gang_metadata:
                owners.refuse(pod, asking, now_s, waits=is_waiting)
        else:
            gang = owners.gang_of(pod, now_s, waits=is_waiting)

        if gang:
            return gang, False
        if is_waiting:
            return f"{PLAIN}{pod.key}", True

        return "", False

    @property
    def is_behind(self) -> bool:
        """Whether pods still have to be assigned again."""
        return self.sub_groups.is_behind or self.owners.is_behind

    def take_moving(self) -> list[str]:
        """Uids of some pods that are to be assigned again."""
        return [*self.sub_groups.take_moving(), *self.owners.take_moving()]
