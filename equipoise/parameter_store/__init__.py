"""Parameter store: servers hold parts of the weights and update them; workers pull weights and push gradients."""
