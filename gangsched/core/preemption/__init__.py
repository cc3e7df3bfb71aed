"""Whole-gang preemption: which lower-priority pods are evicted for a group (V rules of
docs/semantics.md).
"""
