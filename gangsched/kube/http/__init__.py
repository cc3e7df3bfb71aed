"""Requests to the API server: credentials, connections, faults and retries."""
