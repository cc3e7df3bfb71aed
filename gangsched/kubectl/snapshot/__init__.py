"""`snapshot` and `replay`: all input of a plan in one file, and its plan without a cluster."""
