"""How many servers, replicas, workers, partitions, copies and threads a job should have.

Source: Yan, Ruwase, He and Chilimbi, "Performance Modeling and Scalability Optimization of
Distributed Deep Learning Systems", KDD'15.
"""
