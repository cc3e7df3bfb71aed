"""The Filter plugins for claims: volumes, volume limits and devices; and their common parts."""
