"""Why devices cannot be allocated on any node."""

from __future__ import annotations


class DeviceFault(Exception):  # noqa: N818 - a fault of a claim, class or device, not of the program
    """An error in a claim, which refuses the pod on every node."""


class DevicesUnsupported(DeviceFault):
    """The claim needs something that gangsched does not support."""
