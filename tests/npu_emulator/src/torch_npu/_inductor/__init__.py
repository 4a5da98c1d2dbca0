"""Hosts import this for its effect on hardware; there is no compiler here."""
