"""The search for places: all domains by sums, then an exact packing of each domain that sums allow (L11-L17)."""
