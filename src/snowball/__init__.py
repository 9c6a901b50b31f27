"""Snowball: client updates elect each other, so that backdoors stay out of federated learning."""
