"""Steps of workers that push gradients to the servers of a parameter store, which update the weights."""
