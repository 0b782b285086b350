"""What the search of a sweep tries, why, and how sure it is of its best setting."""
