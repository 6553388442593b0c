"""The definition of overlap, nanosecond by nanosecond, and all plans of small graphs."""

from collections.abc import Iterator, Sequence

from planner.families.overlap import Plan, Problem


def slow_makespan(problem: Problem, plan: Plan) -> int:
    """Run a plan clock tick by clock tick: no formula of begins and ends."""
    start_of = {it.start: number for number, it in enumerate(problem.collectives)}
    wait_of = {it.wait: number for number, it in enumerate(problem.collectives)}
    group_of = {member: set(members) for members in plan.merged for member in members}
    queues: dict[str, list[tuple[list[int], set[int]]]] = {it.channel: [] for it in problem.kinds}
    started: set[int] = set()
    ended: set[int] = set()
    todo, clock = list(plan.order), 0
    left: int | None = None
    while True:
        # The rank goes as far as it can without time passing.
        while todo:
            node = todo[0]
            if left is None:
                if node in wait_of and wait_of[node] not in ended:
                    break
                left = problem.nodes[node].duration_ns
                if start_of.get(node) in group_of:
                    left = problem.collectives[start_of[node]].pack_ns
                elif wait_of.get(node) in group_of:
                    left = problem.collectives[wait_of[node]].unpack_ns
            if left:
                break
            todo.pop(0)
            left = None
            if node in start_of:
                number = start_of[node]
                started.add(number)
                members = group_of.get(number, {number})
                if members <= started:
                    kind = problem.kinds[problem.collectives[number].kind]
                    size = sum(problem.collectives[m].size_bytes for m in members)
                    queues[kind.channel].append(([kind.time_ns(size)], members))
            _finish(queues, ended)
        if _finish(queues, ended):
            continue
        if not todo and not any(queues.values()):
            return clock
        clock += 1
        if left:
            left -= 1
        for queue in queues.values():
            if queue:
                queue[0][0][0] -= 1


def _finish(queues: dict[str, list[tuple[list[int], set[int]]]], ended: set[int]) -> bool:
    done = False
    for queue in queues.values():
        while queue and not queue[0][0][0]:
            ended |= queue.pop(0)[1]
            done = True
    return done


def slow_peak(problem: Problem, plan: Plan) -> int:
    """Look at each moment of the order, and add up what is held."""
    peak = 0
    for now in range(len(plan.order)):
        issued, before = set(plan.order[: now + 1]), set(plan.order[:now])
        held = 0
        merged = {member for members in plan.merged for member in members}
        for number, tensor in enumerate(problem.tensors):
            made = tensor.producer is None or tensor.producer in issued
            users = set(tensor.readers) or {tensor.producer} - {None}
            for member, it in enumerate(problem.collectives):
                if it.input_tensor == number and member not in merged:
                    users.add(it.wait)
            over = bool(users) and users <= before and not tensor.kept
            held += tensor.size_bytes if made and not over else 0
        for members in plan.merged:
            its = [problem.collectives[m] for m in members]
            over = {it.wait for it in its} <= before
            if {it.start for it in its} & issued and not over:
                held += sum(it.pack_bytes for it in its)
            if {it.wait for it in its} & issued and not over:
                held += sum(it.unpack_bytes for it in its)
        peak = max(peak, held)
    return peak


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for parts in partitions(rest):
        yield [[first], *parts]
        for number, part in enumerate(parts):
            yield [*parts[:number], [first, *part], *parts[number + 1 :]]


def orders(needed: Sequence[set[int]], done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every order of nodes, each after those that it needs, that begins in this way."""
    if len(done) == len(needed):
        yield done
    for node, before in enumerate(needed):
        if node not in done and before <= {*done}:
            yield from orders(needed, (*done, node))


def all_plans(problem: Problem) -> Iterator[Plan]:
    """Every order that dependences allow, with every merging that it allows."""
    ways = [
        tuple(tuple(sorted(part)) for part in parts if len(part) > 1)
        for parts in partitions(list(range(len(problem.collectives))))
        if all(
            len({problem.collectives[m].kind for m in part}) == 1
            and (len(part) == 1 or problem.kinds[problem.collectives[part[0]].kind].mergeable)
            for part in parts
        )
    ]
    needed = [set(node.after) for node in problem.nodes]  # producers before readers, too
    for order in orders(needed, ()):
        place = {node: number for number, node in enumerate(order)}
        for merged in ways:
            if all(
                max(places) - min(places) == len(places) - 1
                for members in merged
                for places in (
                    [place[problem.collectives[m].start] for m in members],
                    [place[problem.collectives[m].wait] for m in members],
                )
            ):
                yield Plan(order, merged)


def brute_force(problem: Problem) -> int | None:
    """Return the least makespan of all plans within the memory; None without any."""
    limit, plans = problem.memory_limit_bytes, all_plans(problem)
    fitting = (plan for plan in plans if limit is None or slow_peak(problem, plan) <= limit)
    return min((slow_makespan(problem, plan) for plan in fitting), default=None)
