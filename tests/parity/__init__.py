"""Parity: does Filter agree with the real kube-scheduler? Generated clusters are given to both.

`python -m tests.parity --number 300 --seed 1` (or `make parity N=300 SEED=1`) prints agreement and
every difference.
"""
