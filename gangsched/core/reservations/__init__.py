"""Room kept for the oldest groups that wait, and who may pass them; plan() does not use it yet."""
