"""Whatever happens, in whatever order: what must always hold of the state and its plans."""

from __future__ import annotations

from hypothesis import example, given, settings

from gangsched.model.gang import MatchPolicy, Mode
from tests.properties import promises
from tests.properties.histories import Script, played, scripts
from tests.sizes import of_size


@settings(max_examples=of_size(20, 4_000))
@given(scripts)
def test_every_moment_of_every_history_is_sound(script: Script) -> None:
    """B1, B2, R2, R3: members counted right, never over-committed, holds sound, all-or-nothing,
    after every step.
    """
    for history in played(script):
        history.world.check()
        promises.never_over_committed(history.world)
        promises.all_or_nothing(history)
        history.world.state.refresh(history.world.now_s)
        promises.holds_are_sound(history.world)
        promises.columns_are_exact(history.world)
    promises.rounds_end(history.world)


NON_STRICT_WITHOUT_ITS_POD_GROUP = Script(
    kinds=[
        {
            "min": minimum,
            "mode": Mode.STRICT if number else Mode.NON_STRICT,
            "policy": MatchPolicy.ONCE_SATISFIED,
            "pod_group": number == 0,
            "present": 2,
            "gpus": 2 - bool(number),
            "wait": 5,
            "priority": 0,
        }
        for number, minimum in enumerate((2, 0, 0, 0, 0))
    ],
    pairs=(),
    occupied=(1, 3),
    steps=[
        (("plain", 1), "settle"),
        (("members", 0, 1, 1), "settle"),
        (("withdraw", 0), "settle"),
        (("members", 0, 1, 1), "settle"),
        (("members", 0, 1, 1), "settle"),
    ],
)
"""It holds for a second more, while its PodGroup may be on its way, and is Strict after that."""


@settings(max_examples=of_size(20, 4_000))
@example(NON_STRICT_WITHOUT_ITS_POD_GROUP)
@given(scripts)
def test_every_history_comes_to_rest_with_nobody_forgotten(script: Script) -> None:
    """E1, Q3, R1, T1, I6: at rest everyone was told, nobody sleeps who could go on, and nothing
    stale is remembered.
    """
    *_, history = played(script)
    world = history.world
    history.do(("fate", "bound"))
    world.answer()
    promises.nobody_sleeps_wrongly(world)
    promises.strict_groups_hold_nothing(world)
    promises.everyone_was_told(world)
    promises.nobody_sleeps_wrongly(world)
    promises.nothing_is_lost(world)
    promises.never_over_committed(world)
