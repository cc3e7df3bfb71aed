"""Every test of gangsched; the folders say what each kind meets."""
