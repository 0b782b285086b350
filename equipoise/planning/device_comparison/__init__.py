"""Steps of one worker beside those of several that share its batch, and the batch from which on several pay."""
