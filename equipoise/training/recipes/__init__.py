"""Recipes for large batches inside a training run: blended examples, averaged weights, and a batch that grows."""
