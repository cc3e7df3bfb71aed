"""Whole-gang preemption: which lower-priority pods are evicted for a group, if any (V rules of docs/semantics.md)."""
