"""Facts about claims that several members share: how many pods may use one (E1)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

import msgspec

from gangsched.model.gang import Refusal
from gangsched.model.objects import ClaimUse
from gangsched.model.protocol import Applied
from gangsched.model.reasons import Reason
from gangsched.model.storage import READ_WRITE_ONCE_POD, Claim, ClaimRef, Volume
from gangsched.model.verdict_facts import ClaimOfOnePod
from tests.builders import members, node
from tests.properties.facts_of.told import Told
from tests.world import World

SITUATION = "claims"
MODES = (READ_WRITE_ONCE_POD, "ReadWriteOnce", "ReadWriteMany")


def told(seed: int) -> Told | None:
    """One gang, some of whose members use one of two claims, on a node with room for all."""
    rng = Random(seed)
    world = World(node("a", 8))
    modes = {name: rng.choice(MODES) for name in ("data-0", "data-1")}

    for name, mode in modes.items():
        volume = f"of-{name}"
        claim = Claim(
            namespace="ns",
            name=name,
            uid=f"uid-{name}",
            access_modes=(mode,),
            bound=True,
            volume_name=volume,
        )
        ref = ClaimRef("ns", name, claim.uid)
        world.say(Applied(Volume(name=volume, claim=ref)), Applied(claim))

    number = rng.randint(1, 4)
    minimum = rng.randint(1, number)
    uses = [rng.choice(("data-0", "data-0", "data-1", "")) for _ in range(number)]
    pods = []
    for member, name in zip(members("g", number, min_member=minimum), uses, strict=True):
        claims = (ClaimUse(name),) if name else ()
        pods.append(msgspec.structs.replace(member, claims=claims))

    world.create(pods)
    world.told()
    verdict = world.verdict("ns/g")
    if verdict.reason is Reason.SCHEDULED:
        return None

    def lies(refusal: Refusal) -> Iterator[str]:
        fact = refusal.fact
        most = _most(uses, modes)
        if refusal.never and most >= minimum:
            yield f"it is said to start never, and {most} of {number} may start"
        if not isinstance(fact, ClaimOfOnePod):
            return

        must = max(0, minimum - sum(name != fact.claim for name in uses))
        if fact.needed != must or must < 2:
            yield f"{must} of its pods must use {fact.claim}, not {fact.needed}"
        if modes.get(fact.claim) != READ_WRITE_ONCE_POD:
            yield f"{fact.claim} is for more than one pod"

    return Told(verdict.told, lies)


def _most(uses: list[str], modes: dict[str, str]) -> int:
    """The largest number of members of which no two use a claim for one pod."""
    for number in range(len(uses), 0, -1):
        for chosen in combinations(uses, number):
            exclusive = [name for name in chosen if modes.get(name) == READ_WRITE_ONCE_POD]
            if len(exclusive) == len(set(exclusive)):
                return number

    return 0
