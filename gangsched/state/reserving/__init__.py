"""Reservations between plans: candidates, existing reservations, and expected ends of pods."""
