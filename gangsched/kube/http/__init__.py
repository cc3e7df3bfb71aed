"""Requests to the API server: credentials, connections, faults and when to try again."""
