"""The search for places: all domains by sums, then an exact packing of each that sums leave (L11-L17)."""
