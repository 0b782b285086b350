"""Long-lived Ray Serve applications: the predictor, HTTP in and labels out."""
