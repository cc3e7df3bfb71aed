"""Simulation of jobs under given settings: the real planner on a virtual clock.

Invariant: every decision is made by `core.cycle.plan` on the daemon's own state; the simulation
chooses no node and no order. It needs no cluster, models no kubelets, images or networks, and no
bind fails.
"""
