"""visibility: the aggregated API `visibility.gangsched.dev` (docs/visibility.md), served by every replica.

Invariant: it reads the state and never changes it. What it does on the event loop is cut into slices and paced, so that
plans come first; plans of reviews are made in processes of their own. It knows neither `kube` nor `loop`: it asks the
API server through `ports.Calls`.
"""
