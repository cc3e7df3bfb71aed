"""Benchmarks: gangsched on real or realistic input, in figures that can be reproduced.

Invariant: a benchmark checks what it measures and exits with 1 if a promise is broken; its input is
an argument or made from a seed, which it prints. No test of `make test` depends on the speed of the
machine.
"""
