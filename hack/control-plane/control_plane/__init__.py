"""A real Kubernetes control plane on 127.0.0.1, without containers."""
