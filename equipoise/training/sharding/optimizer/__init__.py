"""--sharding optimizer: each worker keeps the optimizer's state of some weights, updates these and sends them."""
