"""Steps of the optimizer, from a backward pass to a stretch of steps between exchanges."""
