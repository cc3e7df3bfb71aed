"""Planted bugs: proof that the tests notice them.

Invariant: each mutant is one small edit of the package that breaks one rule; the tests named beside it must fail on it.
"""
