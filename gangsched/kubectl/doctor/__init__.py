"""`doctor`: what is wrong with a cluster as far as gangs are concerned, each in one sentence with what to do.

Invariant: a finding is a fact that was read, never a guess; what could not be read is listed as not checked.
"""
