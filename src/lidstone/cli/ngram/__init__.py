"""The verbs that count text and make, inspect and use n-gram models."""
