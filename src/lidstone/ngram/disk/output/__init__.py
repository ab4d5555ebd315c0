"""A count file written piece by piece."""
