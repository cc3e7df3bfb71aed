"""What an administrator has decided, as the state takes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangsched.api.gang_spec import GangDefaults
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.preemption import PreemptionSettings
from gangsched.model.reservation import ReservationLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that decide (`gangsched.parameters`); times in seconds.

    `unattended` is for simulations: there is no sweep of groups that wait (`queueing.queue`).
    """

    scheduler_names: frozenset[str] = frozenset({"gangsched"})
    defaults: GangDefaults = field(default_factory=GangDefaults)
    settle_s: float = 0.25
    avoid_s: float = 60.0
    bind_retry_keep_s: float = 30.0
    preemption: PreemptionSettings = field(default_factory=PreemptionSettings)
    policy: GpuPolicy = field(default_factory=GpuPolicy)
    evict_overrun_after_s: float | None = None
    ignore_run_times_s: float = 86_400.0
    reservations: ReservationLimits = field(default_factory=lambda: ReservationLimits(reservations=0))
    unattended: bool = False
