"""Frameworks of federated learning, each with a guard in front of its aggregation; one module a framework."""
