"""What newcomers meet, and what they are told then, on a real API server."""
