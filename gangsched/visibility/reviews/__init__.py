"""PlacementReviews: parsing the request, answering it by a plan, and suggestions."""
