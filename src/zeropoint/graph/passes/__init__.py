"""Passes over a captured graph: each changes or annotates it, one pass a file."""
