"""Checks of a data set against the reference of a bundle, by kind of data."""
