"""The kernels V, G and Λ: in closed form, by autograd, federated, and in the limit of infinite width."""
