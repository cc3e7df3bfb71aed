"""Nominations under way, and what a plan is told of running pods for preemption (the V rules)."""
