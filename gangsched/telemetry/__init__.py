"""Logs, metrics and HTTP pages of the daemon.

Invariant: reporting never waits and never changes state. Callers keep a metric's child object, so
that counting costs about a microsecond. Reports to users are written by `kube.write`. State is not
read here: numbers are arguments, or are read from the counters of their owners at scrape time.
"""
