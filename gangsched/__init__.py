"""gangsched: a gang scheduler that runs alongside a Kubernetes cluster's own scheduler."""

__version__ = "0.1.0"
