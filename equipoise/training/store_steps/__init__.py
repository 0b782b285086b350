"""Steps with a parameter store: workers push gradients to servers, which update the weights, and pull these."""
