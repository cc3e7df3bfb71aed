"""Output: binds, claims, conditions, statuses and Events."""
