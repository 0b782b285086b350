"""Recipes in a sweep: their trials, and the choice of the one that the plan is made with."""
