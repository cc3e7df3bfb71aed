"""Authentication and authorization of requests to the gangs API, and its serving certificate."""
