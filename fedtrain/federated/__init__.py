"""One round of federated learning: messages, the server's half, the client's half, and what it costs to send."""
