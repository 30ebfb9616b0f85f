"""All clients of a round as one computation, by torch.func.vmap."""
