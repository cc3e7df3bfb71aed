"""Placements with the devices that are chosen for their pods at the end of a plan.

Invariant: the devices of a node suffice for all pods that a plan places there. If no devices were
found for a verdict, it places no pod.
"""

from __future__ import annotations

from msgspec import structs

from gangsched.core.reserve import Ledger
from gangsched.model.gang import Placement, Refusal
from gangsched.model.plan import Need, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import DeviceSearchEnded

ENDED = Refusal(Reason.UNSCHEDULABLE, DeviceSearchEnded())


def with_devices(
    verdict: Verdict,
    ledger: Ledger,
) -> Verdict:
    """Add the chosen devices to the placements of a verdict. Refuse the group if the plan ran out
    of work before it found them.
    """
    binds, holds = (_allocated(each, ledger) for each in (verdict.binds, verdict.holds))
    if binds is None or holds is None:
        shapes = dict.fromkeys(
            placement.pod.shape for placement in (*verdict.binds, *verdict.holds)
        )
        # 0 pods: any freed room wakes the group, since it is not known which devices were lacking.
        needs = tuple(Need(shape, 0) for shape in shapes)
        return structs.replace(
            verdict,
            told=ENDED,
            binds=(),
            holds=(),
            notes=(),
            gangs=(),
            needs=needs,
        )

    return structs.replace(
        verdict,
        binds=binds,
        holds=holds,
    )


def _allocated(placements: tuple[Placement, ...], ledger: Ledger) -> tuple[Placement, ...] | None:
    storage = ledger.occupancy.storage
    found = []

    for placement in placements:
        if storage.claim_devices is not None and storage.claim_devices.places(placement.pod):
            claims = storage.allocated(placement.pod, placement.node)
            if claims is None:
                return None

            found.append(structs.replace(placement, claims=claims))
        else:
            found.append(placement)

    return tuple(found)
