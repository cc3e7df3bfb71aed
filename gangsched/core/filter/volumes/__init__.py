"""The Filter plugins about claims: volumes, their limits, and devices; and what they share."""
