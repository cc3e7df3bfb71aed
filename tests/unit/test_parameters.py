"""Parameters: what of the settings decides."""

from __future__ import annotations

from gangsched import parameters
from gangsched.model.backfill import BackfillOrder, OnOverrun
from gangsched.model.reservation import ReservationLimits
from gangsched.settings import Settings
from gangsched.state.rule_set import OVERRUN_EVICTED_AFTER_S


def test_defaults_of_reservations_are_those_of_the_core() -> None:
    """Tests and benchmarks of the core decide as a daemon without settings does."""
    assert parameters.reservation_limits(Settings()) == ReservationLimits()


def test_every_setting_of_reservations_is_passed_on() -> None:
    """H3, H6, H7, H9: what may be set is passed on, and constants stay as they are."""
    settings = Settings(
        reservations=1,
        reservations_per_namespace=3,
        fence_after_s=5,
        backfill_order=BackfillOrder.AGE,
    )
    limits = parameters.reservation_limits(settings)
    assert limits == ReservationLimits(
        reservations=1, per_namespace=3, fence_after_s=5, order=BackfillOrder.AGE
    )


def test_default_run_time_is_passed_on() -> None:
    """H1: an administrator's default counts for pods that state none."""
    assert parameters.rules(Settings()).defaults.expected_runtime_s is None
    assert (
        parameters.rules(Settings(default_expected_runtime_s=60)).defaults.expected_runtime_s == 60
    )


def test_accelerators_are_the_same_for_ends_and_for_placement() -> None:
    """H10: what an administrator calls an accelerator keeps a node busy, too."""
    settings = Settings(accelerators=("example.com/npu",))
    assert parameters.rules(settings).policy == parameters.gpu_policy(settings)


def test_overruns_are_evicted_only_if_asked_for() -> None:
    """H11: the default tells."""
    assert parameters.rules(Settings()).evict_overrun_after_s is None
    evict = Settings(backfill_overrun=OnOverrun.EVICT)
    assert parameters.rules(evict).evict_overrun_after_s == OVERRUN_EVICTED_AFTER_S


def test_simulations_wait_for_no_autoscaler() -> None:
    """E10: a gang with a preemption delay would wait for the answer that nobody gives."""
    settings = Settings(provisioning=True)
    assert parameters.rules(settings).provisioning.is_on
    assert not parameters.rules_alone(settings).provisioning.is_on
