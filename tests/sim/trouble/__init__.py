"""What goes wrong: the plan of a history, faults of requests, and the injector."""
