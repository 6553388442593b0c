"""That something is refused, with the path and the words of its error."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from planner import InvalidInputError


@contextmanager
def refused(
    path: str | None, said: str, kind: type[InvalidInputError] = InvalidInputError
) -> Iterator[None]:
    """Expect an error at a path, if one is given, whose message has these words (a pattern)."""
    with pytest.raises(kind) as caught:
        yield
    error = caught.value
    assert path in (None, error.path)
    assert re.search(said, str(error) if path is None else error.message), str(error)
