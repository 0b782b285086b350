"""Site of the experimentation service: one place in a browser to start, watch, compare, decide and serve."""
