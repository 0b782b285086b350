"""Profile of some steps of an observed loop: parts of a step, layers, lines of code that wait, and a trace."""
