"""What Kubernetes 1.37 has and the gate's release has not, on its own API server (`make
next-release`).
"""
