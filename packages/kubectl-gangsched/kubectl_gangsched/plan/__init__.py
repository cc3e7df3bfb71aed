"""`plan -f FILE`: would the workloads of a manifest start now?"""
