"""An in-memory API server: objects, requests and answers, watches."""
