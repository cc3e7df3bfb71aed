"""A fight for room: three priorities, more work than GPUs, and controllers that recreate evicted
pods at once.
"""
