"""Panels of recipes for large batches."""
