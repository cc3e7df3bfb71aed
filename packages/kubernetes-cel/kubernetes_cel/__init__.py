"""Device selectors: the subset of CEL that they use, with CEL's errors, and with limits on steps
and depth.
"""
