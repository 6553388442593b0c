"""``planner export nccl-tuner``: the choice of algorithm and protocol by size for NCCL's plugin."""

import argparse

from planner.cli.common import check_outputs, in_file, read, warn, write_document
from planner.formats.exporters.nccl_tuner import encode_rules, parse_rules, regret, rules_of
from planner.jsonio.network import decode_network
from planner.model.errors import InvalidInputError
from planner.model.measured import MeasuredNetwork
from planner.model.units import counted


def write_tuner(options: argparse.Namespace) -> int:
    """Write the rows, read them back, and print their loss against the best of the tables."""
    networks: dict[tuple[str, str], MeasuredNetwork] = {}
    files = []
    for argument in options.plans:
        choice, _, path = argument.partition("=")
        algorithm, _, protocol = choice.partition("/")
        if not path or not protocol:
            raise InvalidInputError(
                "PLAN", "expected ALGORITHM/PROTOCOL=FILE, such as ring/simple=network.json"
            )
        if (algorithm, protocol) in networks:
            raise InvalidInputError("PLAN", f"{choice} given twice: import its files as one")
        files.append(path)
        with in_file(path):
            tables = decode_network(read(path)).tables
            if tables is None:
                raise InvalidInputError("", "expected measured tables, as planner import writes")
        networks[algorithm, protocol] = tables
    check_outputs({"--output": options.output}, files)
    rules = rules_of(networks)
    text = encode_rules(rules, "written by planner from measured tables")
    write_document(text, options.output)
    asked, mean, worst = regret(parse_rules(text), networks)
    summary = (
        f"{counted(len(rules), 'row')}; {asked:,} sizes cost {mean:.3%} more than the best of the "
        f"tables in the mean, {worst:.3%} at most"
    )
    warn([summary])
    return 0
