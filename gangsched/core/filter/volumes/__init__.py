"""The Filter plugins for claims (volumes, volume limits and devices), and the code that
they share.
"""
