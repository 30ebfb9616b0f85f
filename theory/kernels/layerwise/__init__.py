"""The exact tangent kernel of any network, layer by layer, without its Jacobian."""
