"""The scheduling queue: which groups are planned next, and which events wake up the others."""
