"""Servers of a parameter store: a thread with a part of the weights, what reaches it, and what it sends."""
