"""Which gang a pod is in (semantics I2, O1).

Invariant: the answer depends on the pod and a setting alone, so that it is the same after a restart
and for every reader.
"""

from __future__ import annotations

import msgspec

from gangsched.api import keys
from gangsched.api.owner_declarations import may_be_gang, owner_name
from gangsched.model.objects import Pod
from gangsched.model.owners import OwnerGangs


class GangRef(msgspec.Struct, frozen=True, gc=False):
    """The gang of a pod. Its PodGroup is the first one that exists in `api_groups`, in
    this order.

    `of_owner`: it is what the pod's owner is, which may turn out to be none (O3).
    """

    id: str
    needs_pod_group: bool
    api_groups: tuple[str, ...]
    of_owner: bool = False


def gang_id(pod: Pod, owner_gangs: OwnerGangs = OwnerGangs.ASKED) -> GangRef | None:
    """Id of the gang that the pod's metadata names, otherwise of its native PodGroup, otherwise of
    its owner if it asks for that; None for a plain pod (I2, O1).
    """
    namespace = pod.namespace
    named = dict(pod.gang_metadata)

    for identity in keys.IDENTITIES:
        name = named.get(identity.key)
        if name and not (identity.opt_in and pod.native_group):
            gang = f"{namespace}/{name}"
            return GangRef(gang, identity.needs_pod_group, identity.api_groups)

    if pod.native_group:
        gang = f"{namespace}/{pod.native_group}"
        return GangRef(gang, True, (keys.NATIVE,))

    asks = pod.owner and keys.asks_for_owner(named, owner_gangs)
    if asks and may_be_gang(pod, named):
        gang = f"{namespace}/{owner_name(pod)}"
        return GangRef(gang, False, (), of_owner=True)

    return None
