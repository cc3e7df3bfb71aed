"""The one exception of this package."""


class ControlPlaneError(Exception):
    """What failed and what to do, with the end of the log if there is one."""
