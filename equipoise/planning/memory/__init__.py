"""Memory that training takes on a worker: by closed form, and the largest batch that fits in it."""
