"""What groups that lack room ask of autoscalers (semantics E9, E10)."""
