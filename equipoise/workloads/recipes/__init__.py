"""Recipes of training that change what a workload learns from: softer labels, and blends of examples."""
