"""H3: of two equal groups the older one has the earlier reservation, whoever asks first."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from gangsched.api import keys
from gangsched.model.objects import Pod
from gangsched.model.reservation import ReservationLimits
from gangsched.state.members import State
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod_group
from tests.world import EPOCH_S, World

LIMITS = ReservationLimits(share=1.0)


class Arrives(msgspec.Struct, frozen=True):
    """A gang of so many members is created."""

    members: int


class Declares(msgspec.Struct, frozen=True):
    """A running pod, or its PodGroup, declares its run time."""

    which: int
    seconds: int
    on_pod: bool


class Passes(msgspec.Struct, frozen=True):
    """Time passes."""

    seconds: int


EVENTS = st.one_of(
    st.builds(Arrives, members=st.integers(1, 2)),
    st.builds(Declares, which=st.integers(0, 2), seconds=st.integers(1, 20), on_pod=st.booleans()),
    st.builds(Passes, seconds=st.integers(1, 40)),
)


def full(nodes: int) -> tuple[World, list[Pod]]:
    """Nodes each of which is taken by a gang of one without a run time."""
    rules = Rules(reservations=replace(LIMITS, per_namespace=8))
    world = World(*(node(f"n{number}") for number in range(nodes)), rules=rules)
    taken: list[Pod] = []
    for number in range(nodes):
        world.declare(pod_group(f"r{number}", 1))
        taken += world.create(members(f"r{number}", 1, gpus=8, pod_group=True))

    world.settle()
    return world, taken


def carry_out(world: World, taken: list[Pod], event: Arrives | Declares | Passes) -> None:
    """One event, which gangsched may see together with the next ones."""
    now_s = int(EPOCH_S + world.now_s)
    if isinstance(event, Arrives):
        name = f"g{len(world.pods)}"
        world.create(members(name, event.members, gpus=8, creation_s=now_s))
    elif isinstance(event, Passes):
        world.advance(event.seconds)
    else:
        number = event.which % len(taken)
        # Long enough that nobody's end passes in the test.
        stated = ((keys.EXPECTED_RUNTIME, f"{1_000 * event.seconds}s"),)
        if event.on_pod:
            world.update(taken[number], run_time_metadata=stated)
        else:
            generation = len(world.plans) + 2
            declared = pod_group(f"r{number}", 1, gang_metadata=stated, generation=generation)
            world.declare(declared)


def check(world: World) -> None:
    """Equals have their reservations in the order of their age; nobody who could have one has
    none before a younger one.
    """
    starts = {each.group: each.at_s for each in world.state.reservations.standing}
    waiting = sorted(
        (record.creation_s, record.id, len(record.members))
        for record in world.state.registry.gangs.values()
        if not record.of(State.BOUND)
    )
    for place, (created_s, older, size) in enumerate(waiting):
        for later_s, younger, other_size in waiting[place + 1 :]:
            if size != other_size or later_s == created_s or younger not in starts:
                continue

            assert older in starts, f"{younger} has a reservation, and {older} has none"
            assert starts[older] <= starts[younger], f"{younger} starts before {older}"


@given(
    nodes=st.integers(1, 3),
    events=st.lists(st.lists(EVENTS, min_size=1, max_size=3), max_size=6),
)
# Of three that wait one plan examines two: the youngest, which asked, and the oldest, in vain.
@example(
    nodes=2,
    events=[
        [Arrives(members=2), Arrives(members=1)],
        [Arrives(members=1), Declares(which=0, seconds=1, on_pod=False)],
    ],
)
def test_older_equals_come_first(
    nodes: int,
    events: list[list[Arrives | Declares | Passes]],
) -> None:
    """H3: also where a younger one comes in the moment in which a run time is declared."""
    world, taken = full(nodes)
    for together in events:
        for event in together:
            carry_out(world, taken, event)

        # Reservations are made anew once a second.
        world.advance(1.5)
        check(world)
