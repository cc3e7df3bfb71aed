"""Device selectors: the part of CEL that they use, with CEL's errors, and with limits on steps and depth."""
