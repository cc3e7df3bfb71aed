"""Parameters: what of the settings decides."""

from __future__ import annotations

from gangsched import parameters
from gangsched.model.backfill import BackfillOrder, OnOverrun
from gangsched.model.reservation import ReservationLimits
from gangsched.settings import Settings
from gangsched.state.rule_set import Rules


def test_defaults_of_reservations_are_those_of_the_core() -> None:
    """Tests and benchmarks of the core decide as a daemon without settings does."""
    assert parameters.reservation_limits(Settings()) == ReservationLimits()


def test_every_setting_of_reservations_is_passed_on() -> None:
    """H3, H5 to H7, H9: none of the limits is left at its default."""
    settings = Settings(
        reservations=1,
        reservations_per_namespace=3,
        reserve_share=0.25,
        small_head_after_s=4,
        small_head_latest_s=7,
        fence_after_s=5,
        fence_age_s=60,
        fence_idle_s=61,
        reserve_horizon_s=6,
        backfill_order=BackfillOrder.AGE,
    )
    limits = parameters.reservation_limits(settings)
    assert limits == ReservationLimits(
        reservations=1,
        per_namespace=3,
        share=0.25,
        small_head_after_s=4,
        small_head_latest_s=7,
        fence_after_s=5,
        fence_age_s=60,
        fence_idle_s=61,
        horizon_s=6,
        order=BackfillOrder.AGE,
    )


def test_default_run_time_is_passed_on() -> None:
    """H1: an administrator's default counts for pods that state none."""
    assert parameters.rules(Settings()).defaults.expected_runtime_s is None
    assert parameters.rules(Settings(default_expected_runtime_s=60)).defaults.expected_runtime_s == 60


def test_accelerators_are_the_same_for_ends_and_for_placement() -> None:
    """H10: what an administrator calls an accelerator keeps a node busy, too."""
    settings = Settings(accelerators=("example.com/npu",))
    assert parameters.rules(settings).policy == parameters.gpu_policy(settings)


def test_overruns_are_evicted_only_if_asked_for() -> None:
    """H11: the default tells."""
    assert parameters.rules(Settings()).evict_overrun_after_s is None
    evict = Settings(backfill_overrun=OnOverrun.EVICT, backfill_overrun_after_s=5)
    assert parameters.rules(evict).evict_overrun_after_s == 5


def test_how_long_false_run_times_are_remembered_is_passed_on() -> None:
    """H11: the default is that of the state."""
    assert parameters.rules(Settings()).ignore_run_times_s == Rules().ignore_run_times_s
    assert parameters.rules(Settings(ignore_run_times_s=0)).ignore_run_times_s == 0
