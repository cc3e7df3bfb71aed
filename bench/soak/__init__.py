"""A soak: pods come, run and go for a long time, while memory, descriptors and stalls of the daemon
are sampled.
"""
