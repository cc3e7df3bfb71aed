"""Reservations: room reserved for the groups that have waited longest, and backfill of other
groups.
"""
