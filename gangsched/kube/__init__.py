"""The only package that uses HTTP, kopf or kubernetes_asyncio: it turns the API server into
messages and back.

Invariant: facts are delivered to one `Sink`, and orders arrive as Actions; no decisions are made
here. Only the last version of each object is stored, to detect changes. This package chooses no
nodes and does not retry failed binds: a failure is an Outcome, and the next plan decides. It never
imports `core`, `state` or `loop`. Every clock, sleep and random number is an argument, so that a
simulator can control time.
"""
