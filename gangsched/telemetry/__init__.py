"""Logs, metrics and HTTP pages of the daemon.

Invariant: reporting never waits and never changes state. Callers keep the metric's child, so that counting costs
about a microsecond. Not done here: reports to users (`kube.write` writes conditions and Events), or reading any state:
numbers are passed in, or read from their owners' counters at scrape time.
"""
