"""`python -m demo`: gangs scheduled on a real API server, seen and checked.

Invariant: everything on the screen is read back from the API server, and every claim is checked
where it is made; the first false claim ends the demo with exit code 1. Only the nodes are fake. No
process and no file is left behind.
"""
