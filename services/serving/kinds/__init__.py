"""Kinds of models that a service serves: what requests hold, and how they are answered."""
