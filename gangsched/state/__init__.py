"""The single owner of all state between plans: deterministic, synchronous, no awaits.

Invariant: state changes only by `apply` (changes in the API server, outcomes of binds) and `commit`
(a plan); time is an argument. This package does not use HTTP, and `core` decides all placements.
"""
