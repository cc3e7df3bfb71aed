"""Parity: does Filter say what the real kube-scheduler says? Generated clusters, put to both.

`python -m tests.parity --number 300 --seed 1` (or `make parity N=300 SEED=1`) prints agreement and every difference.
"""
