"""Tables: how a row of columns becomes what a model takes, and what its answer stands for; without pandas or torch."""
