"""The pure decisions, one module per extension point of the scheduling framework.

Invariant: `cycle.plan(snapshot, queue, now_s=...)` decides; docs/architecture.md names the few
functions that `state` calls too. Nothing here reads a clock, uses random numbers, logs, awaits or
keeps state between calls: the same snapshot with the same groups in any order gives the same Plan.
"""
