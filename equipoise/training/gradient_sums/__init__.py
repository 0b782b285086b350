"""Sums of gradients over workers beside the exact one: of what compression makes of them."""
