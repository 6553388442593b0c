"""Parsers of option values, one for each form, and the names and files that options give."""

import argparse
import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from fractions import Fraction
from typing import Any

from planner.model.errors import InvalidInputError, MeasurementError
from planner.model.topologies import BCube
from planner.model.units import parse_bytes, parse_time
from planner.model.validation import integer, shown
from planner.solving.compare import Option


def parse_bcube(text: str) -> BCube:
    """Return the topology of ``3,2`` or ``3x2``."""
    ends = re.fullmatch(r"([0-9]{1,20})[,x]([0-9]{1,20})", text)
    if not ends:
        raise InvalidInputError("--bcube", f"expected n,k such as 3,2, got {shown(text)}")
    try:
        return BCube(int(ends[1]), int(ends[2]))
    except InvalidInputError as error:
        raise InvalidInputError("--bcube", f"{error.path}: {error.message}") from None


def parse_names(text: str, option: str) -> tuple[str, ...]:
    """Return the items of a list such as ``exact,greedy`` without repetitions."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise InvalidInputError(option, f"expected a list such as A,B, got {shown(text)}")
    return names


def parse_count(text: str, option: str) -> int:
    """Return a whole number of at most nine digits."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InvalidInputError(option, f"expected a whole number such as 4, got {shown(text)}")
    return int(text)


def parse_number(text: str, option: str, *, positive: bool = False) -> Fraction:
    """Return an exact non-negative number such as 0.02 or 1/50."""
    expected = f"expected a number {'>' if positive else '>='} 0 such as 0.02 or 1/50"
    if len(text) > 40 or "e" in text.lower():
        raise InvalidInputError(option, f"{expected}, got {shown(text)}")
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InvalidInputError(option, f"{expected}, got {shown(text)}") from None
    if value < 0 or (positive and not value):
        raise InvalidInputError(option, f"{expected}, got {shown(text)}")
    return value


def seconds(text: str) -> float:
    """Return a duration (s) from a number of seconds or a time such as ``500ms``.

    Raises ArgumentTypeError, to which argparse adds the option.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return parse_time(text, "") / 1e9
    except InvalidInputError:
        expected = "expected seconds, or a time such as 500ms"
        raise ArgumentTypeError(f"{expected}, got {shown(text)}") from None


_VALUES: Mapping[str, Callable[[str], Any]] = {"N": int, "S": seconds}
"""Parsers of option values by the name of the value in the help; other values are texts."""

MODEL_INPUT = {
    "--input SHAPE": "shape of one sample, such as 3x224x224 or 128:int64, if the factory gives no "
    "inputs",
    "--batch-size N": "samples of one rank",
}
"""Options for the inputs of a model that ``MODULE:FACTORY`` names."""
FACTORY = "a callable that returns a torch.nn.Module, or (module, tuple of inputs)"


def add_options(
    parser: Any, options: Mapping[str, str], more: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Add options to a parser or a group: each as typed, and its help.

    ``-o, --output FILE`` has a value, ``--steps N (20)`` a default too; ``--optimizer sgd|adam``
    has one of some values, and ``--json`` is a flag. ``plans PLAN+`` is no option but a list, and
    ``file FILE?`` may be missing. `more` has further arguments of ``add_argument``, by long name.
    """
    for typed, text in options.items():
        spelled, _, default = typed.removesuffix(")").partition(" (")
        words = [word.rstrip(",") for word in spelled.split()]
        names = [word for word in words if word.startswith("-")] or words[:1]
        how: dict[str, Any] = {"action": "store_true"}
        if len(words) > len(names):
            value = words[-1].rstrip("+?")
            how = {"metavar": value, "type": _VALUES.get(value)}
            if "|" in value:
                how = {"choices": value.split("|")}
            if value != words[-1]:
                how["nargs"] = words[-1].removeprefix(value)
            if default:
                how["default"] = _VALUES.get(value, str)(default)
        how |= (more or {}).get(names[-1], {})
        parser.add_argument(*names, help=text, **how)


# ---
# Options that families declare.


def _share(text: str, name: str) -> Fraction:
    share = parse_number(text, name, positive=True)
    if share >= 1:
        raise InvalidInputError(name, "expected a number < 1")
    return share


_READERS: Mapping[str, Callable[[str, str], Any]] = {
    "SIZE": parse_bytes,
    "TIME": parse_time,
    "F": _share,
    "R": parse_number,
    "N,M,…": lambda text, name: [parse_count(part, name) for part in parse_names(text, name)],
    "N,K": lambda text, _: parse_bcube(text),
}
"""Parsers of the values of options that families declare, by the name of the value in the help."""


def typed(options: Iterable[Option]) -> dict[str, str]:
    """Return options that families declare, in the form that `add_options` takes."""
    return {option.typed: option.help for option in options}


def declared(options: argparse.Namespace, known: Iterable[Option]) -> dict[str, Any]:
    """Return the values of options that families declare; options not given have their default."""
    settled = {}
    for option in known:
        value = getattr(options, option.key)
        if value is None:
            value = option.default
        elif (form := option.typed.split()[-1]) in _READERS:
            value = _READERS[form](value, option.name)
        if value is not None and option.least is not None:
            most = {} if option.most is None else {"maximum": option.most}
            integer(value, option.name, minimum=option.least, **most)
        settled[option.key] = value
    return settled


def refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Raise InvalidInputError if one of these options is given."""
    for name in names:
        value = vars(options).get(name.removeprefix("--").replace("-", "_"))
        if value is not None and value is not False:
            raise InvalidInputError(name, why)


def check_integers(options: argparse.Namespace, least: Mapping[str, int]) -> None:
    """Raise InvalidInputError for options that are no integers from their least up to a million."""
    for name, minimum in least.items():
        value = getattr(options, name)
        if value is not None:
            integer(value, f"--{name.replace('_', '-')}", minimum=minimum, maximum=10**6)


def given(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return the options that differ from their defaults, as they are typed."""
    words = []
    for name in names:
        value = getattr(options, name)
        if value != options.parser.get_default(name):
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


# ---
# Rename arguments of the library to options in errors, so that users see what they typed.

_KEYS = {"MODULE:FACTORY": "factory"}  # positional arguments

_SAME = re.findall(
    r"\w+",
    "algorithms batch_size computation cores depths epoch_samples interfaces max_overhead "
    "optimiser_ratio repetitions seed servers warmup workers",
)
"""Arguments of the library that have the same names as their options."""

OPTIONS: Mapping[str, tuple[str, ...]] = {
    **{name: (f"--{name.replace('_', '-')}",) for name in _SAME},
    "activation_bytes": ("--activations",),
    "all_reduce": ("--bcube",),
    "computation_scale": ("--computation",),
    "input_shape": ("--input",),
    "max_batch_bytes": ("--max-batch",),
    "max_group_ns": ("--max-group",),
    "max_transfer_bytes": ("--max-transfer",),
    "method": ("--method", "--methods"),
    "modes": ("--mode",),
    "optimiser": ("--optimiser-ratio",),
    "shards": ("--shards",),
    "spec": ("--model", "--interference", "MODULE:FACTORY"),
    "target": ("--for",),
    "time_limit_s": ("--time-limit",),
    "timeout_s": ("--timeout",),
    "world": ("--bcube",),
}
"""Options that set each argument of the library."""


def as_typed(error: InvalidInputError, options: argparse.Namespace) -> InvalidInputError:
    """Return the error with this command's option in place of the argument, if it has one."""
    name = re.match(r"\w*", error.path)
    assert name is not None
    for option in OPTIONS.get(name[0], ()):
        key = _KEYS.get(option, option.removeprefix("--").replace("-", "_"))
        if key in vars(options):
            return InvalidInputError(f"{option}{error.path[name.end() :]}", error.message)
    return error


# ---
# Load a user's model; its prints go to standard error.


def load_model(
    spec: str, input_shape: str | None, batch_size: int | None
) -> tuple[Any, tuple[Any, ...]]:
    """Return a model and its inputs by `planner.profiling.load_factory`.

    Raises MeasurementError too if the factory ends the program.
    """
    from planner.profiling import load_factory  # its error names what to install without torch

    try:
        with redirect_stdout(sys.stderr):
            return load_factory(spec, input_shape, batch_size)
    except SystemExit as stop:
        raise MeasurementError(f"{spec} ended the program ({stop.code})") from None
