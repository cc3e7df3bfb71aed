"""Kubernetes' own end-to-end specs of scheduling, with gangsched and with kube-scheduler (`make
conformance`).

Invariant: the specs are those of the release, unchanged, and none is left out.
"""
