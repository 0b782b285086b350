"""Steps of workers that hold parts of a model (--sharding): their seconds by closed form."""
