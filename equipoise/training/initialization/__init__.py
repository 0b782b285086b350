"""Initial weights of a run: drawn, pretrained, or pretrained with adapters."""
