"""Planted bugs: proof that the tests notice them.

Each replaces one function or constant of the package and breaks one rule; the tests named beside it
must fail then.
"""
