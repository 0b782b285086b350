"""Detection of things in pictures: boxes with a label and a score for each."""
