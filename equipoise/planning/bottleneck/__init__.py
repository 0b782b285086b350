"""What limits the speed of a plan, and data loading as one of these limits."""
