"""Profiles of training steps on the workers of a cluster."""
