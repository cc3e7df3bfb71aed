"""What the daemon tells about itself: log lines, metrics, health.

Law: telling never waits, and never changes what is told about; whoever counts holds on to the metric's child, so that
counting costs about a microsecond. What it does *not* do: tell users about their gangs (conditions and Events are
`kube`'s), or read any state: numbers are handed in, or read from the plain counters of their owners at scrape time.
"""
