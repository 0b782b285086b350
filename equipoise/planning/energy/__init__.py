"""Energy of steps and of whole training runs, beside their time and cost."""
