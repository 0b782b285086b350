"""Workload text: a language model of characters, on plays of Shakespeare or on your own text files."""
