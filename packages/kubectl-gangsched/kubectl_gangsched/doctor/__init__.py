"""`doctor`: problems of a cluster that concern gangs, each in one sentence with a remedy.

Invariant: a finding is a fact that was read, never a guess; what could not be read is listed as not
checked.
"""
