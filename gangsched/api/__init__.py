"""The contract with users: the keys they write, the PodGroup objects they create, and their
meaning.

Invariant: whatever a user wrote becomes a value, with its source and a list of problems; nothing
here raises for user input, keeps state between calls, or decides where a pod runs. Imports `model`
only.
"""
