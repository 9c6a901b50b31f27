"""Federated-learning frameworks with a guard in front of their aggregation, one package per framework."""
