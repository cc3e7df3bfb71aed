"""The benchmark of issue after issue: gangs through gangsched and its peers, on a real API server.

Law: every measurement has a control plane of its own; load and measuring watch are one process, the scheduler under
test is another, and both sides of a comparison meet the same load in the same run. What it does *not* do: run kubelets
(no kwok), or judge the figures; it prints and writes them.
"""
