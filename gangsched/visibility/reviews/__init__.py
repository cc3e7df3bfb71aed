"""PlacementReviews: the request, the answer of a plan, and suggestions."""
