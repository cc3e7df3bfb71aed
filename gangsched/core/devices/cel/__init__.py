"""Selectors of devices: the part of CEL that they use, with CEL's errors, and bounded in steps and depth."""
