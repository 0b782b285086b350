"""Recipes of a sweep: which trial is next, and what each recipe does to the examples and to the critical batch."""
