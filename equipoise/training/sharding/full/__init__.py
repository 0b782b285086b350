"""--sharding full: each worker keeps a part of every weight, and gathers a unit while the model computes with it."""
