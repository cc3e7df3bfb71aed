"""Why devices cannot be allocated on any node."""

from __future__ import annotations


class DeviceFault(Exception):  # noqa: N818 - a fault of a claim, class or device, not of the program
    """What is wrong with a claim; it refuses the pod, not one node."""


class DevicesUnsupported(DeviceFault):
    """What a claim needs that gangsched does not know."""
