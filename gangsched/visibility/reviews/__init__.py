"""PlacementReviews: what is asked, what a plan answers, and what would help."""
