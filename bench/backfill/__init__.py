"""How long jobs wait when the queue may skip what does not fit: the real planner beside FIFO,
skipping and EASY.
"""
