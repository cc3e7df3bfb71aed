"""Which groups are looked at next, and what wakes the others."""
