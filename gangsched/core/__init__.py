"""Verbs: pure decisions, one room per extension point of the scheduling framework.

Law: `cycle.plan(snapshot, queue, now_s=...)` is the only door. Below it nothing reads a clock, rolls dice, logs, awaits
or remembers: the same snapshot with the same groups in any order gives the same Plan.
"""
