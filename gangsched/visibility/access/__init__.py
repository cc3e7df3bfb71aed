"""Who asks the API of gangs, what they may see, and by which certificate the API server knows us."""
