"""Scenarios: tables that an operator can read, played against the scheduler in two forms.

Invariant: a scenario (`*.yaml`) says which objects are created, what happens to them, and what
users see; it names the rules it proves and nothing of the implementation. `virtual` plays it on a
virtual clock against the loop and a fake API server, `real` against a running daemon and a real API
server; both use the same API objects. `python -m tests.scenarios --rules` prints which scenarios
prove which rule. `README.md` has the vocabulary.
"""
