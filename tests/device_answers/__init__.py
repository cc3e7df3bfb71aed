"""Selectors and allocations beside the Go module of kube-scheduler: `python -m
tests.device_answers`.
"""
