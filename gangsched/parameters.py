"""The settings that affect decisions, for the daemon and for simulations.

Invariant: everything that plans reads them from here, so that a simulation cannot differ from the
daemon because of a forgotten setting.
"""

from __future__ import annotations

from dataclasses import replace

from gangsched.api.gang_spec import GangDefaults
from gangsched.model.backfill import OnOverrun
from gangsched.model.devices import DeviceScope
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.preemption import PreemptionSettings
from gangsched.model.reservation import ReservationLimits
from gangsched.settings import Settings
from gangsched.state.rule_set import OVERRUN_EVICTED_AFTER_S, ProvisioningRules, Rules


def rules(settings: Settings) -> Rules:
    """Settings that the state uses."""
    return Rules(
        scheduler_names=frozenset(settings.scheduler_names),
        defaults=GangDefaults(
            wait_time_s=min(settings.wait_time_s, settings.hold_max_s),
            hold_max_s=settings.hold_max_s,
            match_policy=settings.match_policy,
            expected_runtime_s=settings.default_expected_runtime_s,
            preempt_delay_s=settings.preempt_delay_s,
            bad_node_strikes=settings.bad_node_strikes,
            provisioning_class=settings.provisioning_class,
        ),
        bad_node_window_s=settings.bad_node_window_s,
        bad_node_s=settings.bad_node_s,
        autoscaler_patience_s=settings.autoscaler_patience_s,
        provisioning=provisioning(settings),
        policy=gpu_policy(settings),
        evict_overrun_after_s=(
            OVERRUN_EVICTED_AFTER_S if settings.backfill_overrun is OnOverrun.EVICT else None
        ),
        reservations=reservation_limits(settings),
        preemption=preemption(settings),
        broken_deadlock=settings.broken_deadlock,
        broken_deadlock_after_s=settings.broken_deadlock_after_s,
        owner_gangs=settings.owner_gangs,
        allocates=settings.devices is not DeviceScope.ALLOCATED,
    )


def rules_alone(settings: Settings) -> Rules:
    """The same for simulations and replays: no autoscaler answers, so that none is waited for."""
    return replace(rules(settings), provisioning=ProvisioningRules())


def provisioning(settings: Settings) -> ProvisioningRules:
    """Settings of ProvisioningRequests."""
    return ProvisioningRules(
        is_on=settings.provisioning,
        requested_by=settings.requested_by,
        after_s=settings.provisioning_after_s,
        keep_s=settings.provisioning_keep_s,
        patience_s=settings.autoscaler_patience_s,
    )


def reservation_limits(settings: Settings) -> ReservationLimits:
    """Settings of reservations."""
    return ReservationLimits(
        reservations=settings.reservations,
        per_namespace=settings.reservations_per_namespace,
        fence_after_s=settings.fence_after_s,
        order=settings.backfill_order,
    )


def gpu_policy(settings: Settings) -> GpuPolicy:
    """Settings of accelerators, topology and plain replicas."""
    return GpuPolicy(
        settings.topology_keys,
        frozenset(settings.accelerators),
        settings.plain_replicas,
        settings.heal_prefers,
        settings.home_can_grow,
    )


def preemption(settings: Settings) -> PreemptionSettings:
    """Settings of preemption."""
    return PreemptionSettings(
        scope=settings.preemption,
        min_run_s=settings.preempt_min_run_s,
        max_wait_s=settings.preempt_max_wait_s,
        budgets=settings.preempt_pdb,
        names=frozenset(settings.scheduler_names),
    )
