"""What is given: profiles and graphs, costs and networks, clusters and topologies."""
