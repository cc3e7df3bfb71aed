"""Facts about reservations: when it starts, and who must end before (H14)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import NamedTuple

from gangsched.core.cycle import plan
from gangsched.model.gang import Group, Refusal
from gangsched.model.reasons import Reason
from gangsched.model.reservation import Occupant, ReservationLimits, Reserved, Reserving
from gangsched.model.verdict_facts import Worded
from gangsched.sentences.reserving import reserved as sentence
from gangsched.sentences.times import by
from tests.builders import gang, group, node, pod, running, snapshot
from tests.properties.facts_of.told import Told

SITUATION = "reservations"
WALL_S = 10.0


class Case(NamedTuple):
    """GPUs of nodes, and for each pod on them: node, GPUs, end, and its group."""

    gpus: tuple[int, ...]
    occupants: tuple[tuple[int, int, float, str], ...]
    asks: tuple[int, ...]

    def fits_at(self, at_s: float, nodes: Sequence[str], own: str) -> bool:
        """Whether the members fit on these nodes once what ends by then has ended; pods of its own
        group stay.
        """
        free = [*self.gpus]
        for where, gpus, ends_s, of in self.occupants:
            if of == own or ends_s > at_s:
                free[where] -= gpus

        places = [int(name[1:]) for name in nodes]
        return any(
            all(
                sum(gpus for gpus, at in zip(self.asks, choice, strict=True) if at == place)
                <= free[place]
                for place in places
            )
            for choice in product(places, repeat=len(self.asks))
        )


def case_of(seed: int) -> Case:
    """Full nodes, and one to three members; perhaps one that runs already."""
    rng = Random(seed)
    gpus = tuple(rng.choice((4, 8)) for _ in range(rng.randint(1, 3)))
    occupants = []
    for where, number in enumerate(gpus):
        left = number
        while left:
            size = min(left, rng.choice((2, 4, 8)))
            of = rng.choice(("", "", "ns/old", "ns/own"))
            occupants.append((where, size, float(rng.randint(20, 90)), of))
            left -= size

    asks = (rng.choice((2, 4, 8)),) * rng.randint(1, 3)
    return Case(gpus, tuple(occupants), asks)


def told(seed: int) -> Told | None:
    """What is reserved for one group; the refusal is only what the lies are changed in."""
    case = case_of(seed)
    reservation = reserved_in(case)
    if reservation is None:
        return None

    return Told(
        refusal_of(reservation),
        lambda _: lies(case, reservation),
    )


def refusal_of(reservation: Reserved) -> Refusal:
    """The text of a reservation as a refusal's."""
    return Refusal(Reason.UNSCHEDULABLE, Worded(sentence(reservation, "ns")))


def reserved_in(case: Case) -> Reserved | None:
    nodes = [node(f"n{at}", gpus) for at, gpus in enumerate(case.gpus)]
    by_node: dict[str, tuple[Occupant, ...]] = {}
    for number, (where, gpus, ends_s, of) in enumerate(case.occupants):
        name = f"n{where}"
        there = running(pod(f"on-{number}", gpus=gpus), name)
        by_node[name] = (*by_node.get(name, ()), Occupant(there, name, 0.0, ends_s, group=of))

    placed = [(on.pod, on.node) for on_node in by_node.values() for on in on_node]
    reserving = Reserving(
        limits=ReservationLimits(),
        wall_s=WALL_S,
        occupants=lambda: by_node,
    )
    made = plan(snapshot(nodes, placed), [_head(case)], now_s=0.0, reserving=reserving).reservations
    assert made is not None
    return next(iter(made.standing), None)


def _head(case: Case) -> Group:
    """A gang with members that run, if some do, and so many that wait."""
    pods = [pod(f"g-{at}", gpus=gpus) for at, gpus in enumerate(case.asks)]
    own = [where for where, _, _, of in case.occupants if of == "ns/own"]
    if not own:
        return group(gang("ns/own", pods))

    least = len(own) + len(pods)
    of_gang = gang(
        "ns/own",
        pods,
        min_member=least,
        permitted_min=least,
        bound=len(own),
        satisfied=True,
        nodes=tuple(f"n{where}" for where in own),
    )
    return group(of_gang, broken=True)


def lies(case: Case, reservation: Reserved) -> Iterator[str]:
    """What is false in a reservation with a start time."""
    if reservation.is_fence:
        return

    at_s = reservation.at_s
    nodes = reservation.nodes
    is_whole = len(reservation.placements) == len(case.asks)
    if is_whole and not case.fits_at(at_s, nodes, "ns/own"):
        yield f"it does not fit on {nodes} at {at_s}"

    names = {of or f"ns/on-{at}" for at, (_, _, _, of) in enumerate(case.occupants)}
    for blocker in reservation.waits_for:
        if blocker.id == "ns/own":
            yield "it waits for its own end"
        elif blocker.id not in names:
            yield f"{blocker.id} does not run"

    ends = [ends_s for _, _, ends_s, of in case.occupants if of != "ns/own" and ends_s <= at_s]
    if not reservation.waits_for or not ends:
        yield "it waits for nobody"

    text = sentence(reservation, "ns")
    if by(at_s) not in text:
        yield f"another time is told: {text}"
