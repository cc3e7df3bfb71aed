"""`python -m demo`: gangs scheduled on a real API server, seen and checked.

The law: everything on the screen was read back from the API server, and every claim is checked where it is made; the
first false one ends the demo with exit code 1. Only the nodes are fake. It leaves no process and no file behind.
"""
