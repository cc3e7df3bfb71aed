"""The one exception of this package: what a person reads when the control plane does not come up."""


class ControlPlaneError(Exception):
    """What went wrong and what to do, with the last lines of the log where there is one."""
