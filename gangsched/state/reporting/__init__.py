"""What people are told: conditions, statuses and Events, and when."""
