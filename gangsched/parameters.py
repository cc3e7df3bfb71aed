"""What of the settings decides: the same for the daemon and for a simulation.

Law: whoever plans takes these from here, so that a simulation cannot differ from the daemon by forgetting a setting.
"""

from __future__ import annotations

from gangsched.api.gang_spec import GangDefaults
from gangsched.core.cycle import Limits
from gangsched.model.backfill import OnOverrun
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.preemption import PreemptionSettings
from gangsched.model.reservation import ReservationLimits
from gangsched.settings import Settings
from gangsched.state.rule_set import Rules


def rules(settings: Settings) -> Rules:
    """What the state goes by."""
    evicts = settings.backfill_overrun is OnOverrun.EVICT
    return Rules(
        scheduler_names=frozenset(settings.scheduler_names),
        defaults=GangDefaults(
            wait_time_s=min(settings.wait_time_s, settings.hold_max_s),
            hold_max_s=settings.hold_max_s,
            match_policy=settings.match_policy,
            expected_runtime_s=settings.default_expected_runtime_s,
            preempt_delay_s=min(settings.preempt_delay_s, settings.preempt_delay_max_s),
            preempt_delay_max_s=settings.preempt_delay_max_s,
        ),
        policy=gpu_policy(settings),
        evict_overrun_after_s=settings.backfill_overrun_after_s if evicts else None,
        ignore_run_times_s=settings.ignore_run_times_s,
        settle_s=settings.settle_ms / 1e3,
        avoid_s=settings.kubelet_rejection_avoid_s,
        bind_retry_keep_s=settings.bind_retry_keep_s,
        reservations=reservation_limits(settings),
        preemption=preemption(settings),
    )


def limits(settings: Settings) -> Limits:
    """How much one plan looks at."""
    return Limits(groups=settings.plan_groups, pods=settings.plan_pods)


def reservation_limits(settings: Settings) -> ReservationLimits:
    """For how many groups room is reserved, for whom and for how long."""
    return ReservationLimits(
        reservations=settings.reservations,
        per_namespace=settings.reservations_per_namespace,
        share=settings.reserve_share,
        small_head_after_s=settings.small_head_after_s,
        small_head_latest_s=settings.small_head_latest_s,
        fence_after_s=settings.fence_after_s,
        fence_age_s=settings.fence_age_s,
        fence_idle_s=settings.fence_idle_s,
        horizon_s=settings.reserve_horizon_s,
        order=settings.backfill_order,
    )


def gpu_policy(settings: Settings) -> GpuPolicy:
    """What counts as an accelerator, and which nodes are close to each other."""
    return GpuPolicy(settings.topology_keys, frozenset(settings.accelerators))


def preemption(settings: Settings) -> PreemptionSettings:
    """Whether groups may have others evicted, whom, and how many."""
    return PreemptionSettings(
        scope=settings.preemption,
        min_run_s=settings.preempt_min_run_s,
        hold_back_s=settings.preempt_hold_back_s,
        max_wait_s=settings.preempt_max_wait_s,
        budgets=settings.preempt_pdb,
        work_cap_s=settings.preempt_work_cap_s,
        per_cycle=settings.preempt_per_cycle,
        max_pods=settings.preempt_max_pods,
        names=frozenset(settings.scheduler_names),
    )
