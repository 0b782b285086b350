"""Publication of models by kind of data: what is exported, evaluated and kept of each."""
