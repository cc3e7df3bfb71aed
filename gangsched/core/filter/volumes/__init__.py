"""The Filter plugins for claims (volumes, volume limits and devices), and what they have in common."""
