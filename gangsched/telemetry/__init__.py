"""Logs, metrics and HTTP pages of the daemon.

Invariant: reporting never waits and never changes state. Callers keep a metric's child object, so that counting costs
about a microsecond. Reports to users are `kube.write`'s. State is not read here: numbers are passed in, or read from
their owners' counters at scrape time.
"""
