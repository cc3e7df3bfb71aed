"""The input of a plan as a file: written by the daemon about an internal error and by `kubectl
gangsched snapshot`, and played without a cluster.
"""
