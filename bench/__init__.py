"""Benchmarks: what gangsched does on real or realistic input, in numbers that can be had again.

The law: a benchmark checks what it measures and exits with 1 when a promise was broken; its input is an argument or
made from a seed, and it prints the seed. No test of `make test` depends on how fast a machine is.
"""
