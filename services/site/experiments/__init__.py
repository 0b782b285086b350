"""Experiments below the results folder: index, comparison, notes and plans."""
