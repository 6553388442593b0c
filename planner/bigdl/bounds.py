"""Lower bound on the time of any synchronisation algorithm over the nodes' NICs.

Problem: N > 1 nodes have P gradients of E elements each, and every node needs the sum. A step costs
a start-up, the bytes of the busiest NIC and the additions of the busiest machine.

Guarantee: no plan is faster. The rotated exchange meets the bound where N divides E and a start-up
costs at most what sending everything in one step costs more; always if start-ups are free. Proof:
docs/bigdl.md, "Why the bound holds".
Complexity: O(1). Source: own; the counting argument for all-reduce.
"""

from planner.bigdl.problem import Problem

__all__ = ["lower_bound_ns"]


def lower_bound_ns(problem: Problem) -> int:
    """Return the lower bound (ns) on the time of any synchronisation."""
    nodes, each, size = problem.nodes, problem.partitions_per_node, problem.gradient_bytes
    network = problem.network
    if nodes == 1:
        best = network.time(0, (each - 1) * size)
    else:
        sent = -(-2 * (nodes - 1) * problem.elements // nodes) * problem.element_bytes
        added = -(-(nodes * each - 1) * problem.elements // nodes) * problem.element_bytes
        at_once = network.time((nodes - 1) * size, (each + nodes - 2) * size, 1)
        best = min(at_once, network.time(sent, added, 2))
    return -int(-best // 1)
