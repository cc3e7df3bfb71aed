"""The aggregated API `visibility.gangsched.dev` (docs/visibility.md), served by every replica.

Invariant: it reads the state and never changes it. Its work on the event loop is cut into slices and paced, so that
plans take precedence; reviews are planned in separate processes. It knows neither `kube` nor `loop`: it queries the API
server through `ports.Calls`.
"""
