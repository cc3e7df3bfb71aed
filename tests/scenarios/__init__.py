"""Scenarios: tables that an operator can read, played against the scheduler in two forms.

The law: a scenario (`*.yaml`) says which objects are made, what happens to them, and what people see then; it names
the rules it proves and nothing of how the scheduler works. `virtual` plays it on a virtual clock against the loop and
a pretended API server, `real` against a running daemon and a real API server; both take the same API objects.
`python -m tests.scenarios --rules` prints which scenarios prove which rule. The words are in `README.md`.
"""
