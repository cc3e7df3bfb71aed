"""Simulation of jobs under given settings: the real planner on a virtual clock.

Invariant: every decision is `core.cycle.plan`'s, on the daemon's own state; nothing here chooses a node or an order. It
has no cluster, models no kubelets, images or networks, and no bind fails.
"""
