"""Gangs through gangsched and its peers, on a real API server.

Invariant: every measurement has its own control plane; load and measuring watch are one process,
the scheduler under test is another, and all sides of a comparison have the same load in the same
run. Not done here: to run kubelets (no kwok), or to judge the figures; `goals` does.
"""
