"""The only package that knows HTTP, kopf or kubernetes_asyncio: it turns the API server into messages and back.

Invariant: facts go up through one `Sink`, orders come down as Actions; nothing here decides. What it does *not* do:
keep the cluster's state (only the last version of each object, to tell changes from repetition), choose nodes, or retry
a bind on its own: a bind that failed is an Outcome, and the next plan's business. It never imports `core`, `state` or
`loop`.

Every clock, sleep and random number is an argument, so that a simulator can control time.
"""
