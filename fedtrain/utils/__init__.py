"""Small helpers that know nothing of federated learning."""
