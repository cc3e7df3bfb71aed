"""The contract with users: the keys they write, the PodGroup objects they create, and what these mean.

Invariant: whatever a user wrote becomes a value, with its source and the list of problems found on the way; nothing
here raises for what a user wrote, remembers anything between calls, or decides where a pod runs. Imports `model` only.
"""
