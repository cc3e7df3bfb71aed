"""Faults between the daemon and a real API server, on purpose and on schedule."""
