"""Where the pieces of batches lie in memory."""

from collections import Counter
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from planner.programs import Batch, Piece
from planner.runtime.executors.messages import lay_out, means_of, messages_of


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Batch], dict[str, nn.Parameter]]:
    """Draw parameters of one or two types, some cut, in batches of any pieces."""
    parameters, pieces = dict[str, nn.Parameter](), list[Piece]()
    for number in range(draw(st.integers(1, 5))):
        size = draw(st.integers(1, 6))
        dtype = draw(st.sampled_from([torch.float32, torch.float64]))
        parameters[f"p{number}"] = nn.Parameter(torch.zeros(size, dtype=dtype))
        cuts = draw(st.lists(st.integers(1, size), max_size=3, unique=True))
        width = parameters[f"p{number}"].element_size()
        edges = [0, *sorted(width * cut for cut in cuts if cut < size), width * size]
        pieces += [Piece(f"p{number}", start, stop) for start, stop in pairwise(edges)]
    pieces = draw(st.permutations(pieces))
    groups: list[list[Piece]] = [[]]
    for piece in pieces:
        new = draw(st.booleans())
        if groups[-1] and new:
            groups.append([])
        groups[-1].append(piece)
    return [Batch(tuple(group)) for group in groups], parameters


@given(batches())
def test_every_mean_is_found_where_its_pieces_were_summed_up(
    drawn: tuple[list[Batch], dict[str, nn.Parameter]],
) -> None:
    given_batches, parameters = drawn
    messages = messages_of(given_batches, parameters, 2)
    gradients = [torch.rand_like(parameter) for parameter in parameters.values()]
    for message in messages:
        message.pack([(gradient, 0) for gradient in gradients])
        for flat in message.buffers:
            flat.mul_(2)  # as if another rank had sent the same
    for mean, gradient in zip(means_of(messages, parameters.values()), gradients, strict=True):
        assert torch.equal(mean(), gradient)


@given(batches())
def test_messages_do_not_share_memory_and_hold_their_pieces_once(
    drawn: tuple[list[Batch], dict[str, nn.Parameter]],
) -> None:
    given_batches, parameters = drawn
    spans = list[tuple[int, int]]()
    for batch, stretches in zip(given_batches, lay_out(*drawn), strict=True):
        assert Counter(
            (name, elements.start) for stretch in stretches for name, elements in stretch.pieces
        ) == Counter(
            (piece.parameter, piece.start // parameters[piece.parameter].element_size())
            for piece in batch.pieces
        )
        for stretch in stretches:
            assert len(stretch) == len(stretch.flat)
            start = stretch.flat.data_ptr()
            spans.append((start, start + stretch.flat.nbytes))
    spans.sort()
    assert all(former[1] <= latter[0] for former, latter in pairwise(spans))


def test_a_parameter_cut_at_the_borders_of_batches_needs_no_copy() -> None:
    parameters = {name: nn.Parameter(torch.zeros(4)) for name in "abc"}
    several = [
        Batch((Piece("b", 8, 16), Piece("c"))),
        Batch((Piece("b", 4, 8),)),
        Batch((Piece("b", 0, 4), Piece("a"))),
    ]
    means = means_of(messages_of(several, parameters, 2), parameters.values())
    first, second = means[1](), means[1]()
    first.fill_(1)
    assert second.tolist() == [1] * 4
