"""Hundreds of groups that preempt at once, on a control plane whose controllers recreate every
victim.
"""
