"""Plays on real nodes: kubelets, containers, and the image as users install it
(`make real-node`).
"""
