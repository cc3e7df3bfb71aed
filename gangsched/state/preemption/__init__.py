"""Nominations in progress, and the preemption input of plans (the V rules)."""
