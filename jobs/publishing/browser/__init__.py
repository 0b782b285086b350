"""Page that runs a published model in the browser: its files, and those of the engine that it needs."""
