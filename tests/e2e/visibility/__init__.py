"""The API of gangs, on a real API server with the aggregation layer."""
