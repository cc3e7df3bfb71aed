"""The aggregated API `visibility.gangsched.dev` (docs/visibility.md), served by every replica.

Invariant: it reads the state and never changes it. Its work on the event loop is split into short,
paced slices, so that plans take precedence; reviews are planned in separate processes. It imports
neither `kube` nor `loop`, and queries the API server through `ports.Calls`.
"""
