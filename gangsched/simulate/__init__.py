"""What these settings would do to those jobs: the real planner on a virtual clock, over a list of jobs.

Invariant: every decision is `core.cycle.plan`'s, on the state that the daemon keeps too; nothing here chooses a node or
an order. What it does *not* do: talk to a cluster, model kubelets, images or networks, or fail a bind.
"""
