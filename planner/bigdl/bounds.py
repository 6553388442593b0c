"""A lower bound on the time of every way to synchronise the nodes over their own NICs.

An algorithm runs in steps. A step costs a start-up, the busiest NIC's bytes and the busiest
machine's additions; messages carry whole elements, each a sum of gradients, and what a node learns
in a step it can pass on in the next. Let N > 1 nodes have P gradients each, of E elements.

*One step.* Before it no node knows anything of another's gradients, so every node must receive at
least one message about every element from each of the N-1 others, ``(N-1)·E`` elements, and must
merge P + N - 1 values of each, with P + N - 2 additions.

*Two steps or more.* Take one element, and a node r that is among the first to know its whole sum,
in step s. Each of the N-1 others has sent a message that led to r's knowledge: one to r itself, or
one to another node before step s, which had to be passed on. Each of the others also receives, in
step s or later, the message that completes its own knowledge. No message is of both kinds: the
first are sent to r or before step s, the second to others and not before s. So an element takes
2(N-1) messages, and of all N NICs one sends at least ``⌈2(N-1)·E/N⌉`` elements. The sum of N·P
values takes N·P - 1 additions, so one node makes at least ``⌈(N·P-1)·E/N⌉``.

The bound is the cheaper of the two cases; the parts of a case add up because no step is shorter
than its busiest NIC and machine, and the sum over steps of the busiest is at least what any one
does in all. A driver is one machine more, which the second case does not count; its plans still
are above it: a whole gradient enters the driver's NIC in one phase and whole weights leave it in
another, 2·E > 2(N-1)/N·E, and in each phase the busiest machine adds at least the mean.

Guarantee: below every plan. Met by the rotated exchange where N divides E and a start-up costs at
most what sending everything in one step costs more; so always without start-up costs.

Complexity: O(1). Source: own; the counting argument for all-reduce.
"""

from planner.bigdl.problem import Problem

__all__ = ["lower_bound_ns"]


def lower_bound_ns(problem: Problem) -> int:
    """Return a time below which no synchronisation can end."""
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
