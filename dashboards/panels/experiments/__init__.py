"""Panels about several experiments: the search of a sweep, and curves side by side."""
