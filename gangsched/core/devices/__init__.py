"""Devices of Dynamic Resource Allocation: selectors, pools, and allocation on one node."""
