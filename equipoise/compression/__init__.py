"""Gradients in fewer bytes: encoders, and sums over workers of what they encode."""
