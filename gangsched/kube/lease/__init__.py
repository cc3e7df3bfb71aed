"""Leader election by a Lease: only the holder writes."""
