"""What goes out: binds, claims, conditions, statuses and Events."""
