"""`snapshot` saves all input of a plan in one file, and `replay` makes the plan from it without a
cluster.
"""
