"""The whole daemon on a virtual clock against an in-memory API server, with faults; one seed is one
history.
"""
