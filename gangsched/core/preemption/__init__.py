"""Whole-gang preemption: which lower-priority work makes room for a group, if any (V rules of docs/semantics.md)."""
