"""Removed settings and their replacements.

Invariant: a removed name is never reused with another meaning, and setting it fails with a hint.
`configuration`, `options` and the schema of the chart's values read this table.
"""

from __future__ import annotations

from collections.abc import Mapping

_BIND_ADDRESS = "set bind_address"
_CERT_DIR = "set visibility_cert_dir to a directory with tls.crt and tls.key"
_LEASE = "set lease_duration_s, from which it follows"
_WRITES = "set writes_per_s, from which the other limits follow"


def _fixed(value: str) -> str:
    return f"it is fixed at {value}"


REMOVED: Mapping[str, str] = {
    "backfill_overrun_after_s": _fixed("600 s"),
    "bind_retry_keep_s": _fixed("30 s"),
    "debug_host": "the debug server listens on 127.0.0.1 only; use kubectl port-forward",
    "event_burst": _fixed("25 Events about one object; set writes_per_s for all of them"),
    "event_every_s": _fixed("300 s; set writes_per_s for all Events"),
    "fence_age_s": _fixed("7 days; set fence_after_s for when such a reservation begins"),
    "fence_idle_s": _fixed("4 days; set fence_after_s for when such a reservation begins"),
    "health_host": _BIND_ADDRESS,
    "ignore_run_times_s": _fixed("one day"),
    "kubelet_rejection_avoid_s": _fixed("60 s"),
    "lease_renew_s": _LEASE,
    "lease_retry_s": _LEASE,
    "namespace_write_burst": _WRITES,
    "namespace_writes_per_s": _WRITES,
    "object_write_burst": _fixed("10 writes to one object; set writes_per_s for all of them"),
    "object_write_every_s": _fixed("5 s; set writes_per_s for all objects"),
    "plan_groups": _fixed("400 groups"),
    "plan_pods": _fixed("5,000 pods"),
    "podgroup_sweep_s": _fixed("60 s"),
    "preempt_delay_max_s": _fixed("3,600 s"),
    "preempt_hold_back_s": _fixed("60 s"),
    "preempt_max_pods": _fixed("50,000 pods"),
    "preempt_per_cycle": _fixed("100 groups"),
    "preempt_work_cap_s": _fixed("3,600 s"),
    "reserve_horizon_s": _fixed("7 days"),
    "reserve_share": _fixed("0.5; set reservations for their number"),
    "settle_ms": _fixed("250 ms"),
    "small_head_after_s": _fixed("one hour"),
    "small_head_latest_s": _fixed("2 days"),
    "total_write_burst": _WRITES,
    "total_writes_per_s": "set writes_per_s",
    "visibility_cert_file": _CERT_DIR,
    "visibility_drain_s": "set shutdown_s, half of which it is",
    "visibility_host": _BIND_ADDRESS,
    "visibility_key_file": _CERT_DIR,
}


def was_removed(name: str) -> str:
    """The replacement of the removed setting `name`; the text continues a sentence that begins with
    the name.
    """
    return f"was removed: {REMOVED[name]}"
