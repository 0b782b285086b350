"""Forms of the commands, and the Ray jobs that they are submitted as."""
