"""Ray Serve applications: the predictor, which answers images with labels over HTTP, and the pages of runs."""
