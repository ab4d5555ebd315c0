"""The verbs that train, evaluate and compare neural models."""
