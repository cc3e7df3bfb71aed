"""The only package that uses HTTP, kopf or kubernetes_asyncio: it turns the API server into messages and back.

Invariant: facts go up through one `Sink`, orders come down as Actions; nothing here decides. It keeps only the last
version of each object, to detect changes; it chooses no nodes and retries no failed bind (that is an Outcome, and the
next plan's decision). It never imports `core`, `state` or `loop`. Every clock, sleep and random number is an argument,
so that a simulator can control time.
"""
