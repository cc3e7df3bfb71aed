"""The single owner of what is known: deterministic, synchronous, no awaits.

Law: state changes only by `apply` (what the API server said, how our binds ended) and `commit` (a plan); time comes in
as an argument. It knows nothing of HTTP and never decides placement: that is `core`.
"""
