"""Formats of times in API objects."""

from __future__ import annotations

from datetime import datetime


def rfc3339(moment: datetime) -> str:
    """A metav1.Time: whole seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """A metav1.MicroTime, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
