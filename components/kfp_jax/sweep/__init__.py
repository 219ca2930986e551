"""Sweeps: which trials to make and which to end, without I/O."""
