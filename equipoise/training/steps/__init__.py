"""Steps of an optimizer."""
