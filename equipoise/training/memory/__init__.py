"""Memory of a training run: measured, and saved by computing blocks of layers again."""
