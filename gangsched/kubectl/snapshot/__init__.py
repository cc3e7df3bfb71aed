"""`snapshot` and `replay`: everything a plan is made from in one file, and its plan without a cluster."""
