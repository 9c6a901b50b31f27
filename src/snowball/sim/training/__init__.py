"""Training and evaluation of models: local SGD, what a client does in a round, what a malicious one does instead."""
