"""Models of which each worker holds a part: of the optimizer's state, of each tensor, or of the layers."""
