"""Ways to sum up over all ranks: gloo's ring, and any collective program, BML's among them."""
