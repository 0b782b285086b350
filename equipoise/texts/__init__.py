"""Texts: how characters become the tokens that a model takes; without torch."""
