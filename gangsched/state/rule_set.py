"""The administrator's settings in the form that the state uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangsched.api.gang_spec import GangDefaults
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.owners import OwnerGangs
from gangsched.model.preemption import BrokenDeadlock, PreemptionSettings
from gangsched.model.reservation import ReservationLimits

OVERRUN_EVICTED_AFTER_S = 600.0
"""Excess over the stated run time before a backfilled group is evicted (H11): minutes, to write a
last checkpoint.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningRules:
    """Whether and when autoscalers are asked by ProvisioningRequests (E10); times are in
    seconds.
    """

    is_on: bool = False
    requested_by: str = "gangsched"
    """The scheduler in whose name requests are made; requests of others are not touched."""
    after_s: float = 10.0
    """How long a gang lacks room before it asks."""
    keep_s: float = 900.0
    """How long the nodes that were added for a gang are reserved for it."""
    patience_s: float = 0.0
    """How long an autoscaler may look for capacity; 0 for an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings that affect decisions (`gangsched.parameters`), and related constants; times are in
    seconds.

    `unattended` is for simulations: waiting groups are not planned periodically (`queueing.queue`).
    """

    scheduler_names: frozenset[str] = frozenset({"gangsched"})
    defaults: GangDefaults = field(default_factory=GangDefaults)
    settle_s: float = 0.25
    """How long a verdict stands before it is reported: the verdict of a gang that arrives pod by
    pod changes with each pod, and one sentence is written for all."""
    avoid_s: float = 60.0
    """How long a gang avoids a node whose kubelet rejected a member (B6): time to correct the
    node's status.
    """
    bad_node_window_s: float = 3_600.0
    bad_node_s: float = 3_600.0
    """Time within which strikes on a node add up, and for which the gang then avoids it (L8)."""
    bind_retry_keep_s: float = 30.0
    """How long a member of an incomplete gang keeps its node after a failed bind (B3): the longest
    timeout that a webhook may have, so that one which is away costs no gang its nodes."""
    preemption: PreemptionSettings = field(default_factory=PreemptionSettings)
    broken_deadlock: BrokenDeadlock = BrokenDeadlock.TELL
    broken_deadlock_after_s: float = 600.0
    """How long a deadlock of running gangs lasts before the lower rank yields (D2)."""
    autoscaler_patience_s: float = 0.0
    """How long a gang asks for nodes while those that come do not suffice, 0 without limit (E9)."""
    provisioning: ProvisioningRules = field(default_factory=ProvisioningRules)
    policy: GpuPolicy = field(default_factory=GpuPolicy)
    evict_overrun_after_s: float | None = None
    ignore_run_times_s: float = 86_400.0
    """How long the run times that a namespace states count for nothing after one was far too short
    (decision 0041).
    """
    reservations: ReservationLimits = field(
        default_factory=lambda: ReservationLimits(reservations=0)
    )
    allocates: bool = False
    """Whether devices are allocated to ResourceClaims."""
    extends: bool = True
    """Whether, if they are, claims are made for extended resources that device classes serve."""
    owner_gangs: OwnerGangs = OwnerGangs.ASKED
    unattended: bool = False
