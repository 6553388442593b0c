"""The input data: profiles and graphs, costs and networks, clusters and topologies."""
