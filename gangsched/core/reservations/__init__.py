"""Reservations: room reserved for the groups that have waited longest, and backfill beside them."""
