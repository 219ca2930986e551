"""Runs a sweep: trials as jobs of a backend, several at once."""
