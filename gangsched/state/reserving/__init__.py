"""What the state knows of reservations: who may have one, what stands, and when those end that are in the way."""
