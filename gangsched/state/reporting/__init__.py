"""Reporting: conditions, statuses and Events, and when they are written."""
