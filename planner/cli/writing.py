"""Files a command writes appear whole or not at all.

Problem. A disk may be full, a process may be stopped: half a plan must not stand where a whole one
stood before.

Method. Write a file beside it and rename that, which file systems do in one step. A link stays one,
and the file it leads to keeps its permissions. What is no file, such as ``/dev/null`` or a pipe,
and a file in a folder that is closed to this user, is written in place.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from planner.cli.telling import tell
from planner.errors import PlannerError

__all__ = ["replacing", "write_file", "writing"]

_TRIES = 100


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield where to write what `path` shall hold; it holds it when the block has ended well.

    The place has the same ending as `path`.

    Raises
    ------
    PlannerError
        If it cannot be written; then it holds what it held.
    """
    target = Path(os.path.realpath(path))
    tell(f"writing {path}")
    with writing(path):
        beside = _beside(target)
        if beside is None:
            yield Path(path)
            return
        try:
            yield beside
            beside.replace(target)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise


@contextmanager
def writing(what: str | Path) -> Iterator[None]:
    """Say of errors in the block that `what` cannot be written.

    Raises
    ------
    PlannerError
        In their place; BrokenPipeError stays what it is.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PlannerError(f"{what}: cannot be written: {error.strerror or error}") from None


def write_file(path: str | Path, data: bytes) -> None:
    """Write a file, whole or not at all.

    Raises
    ------
    PlannerError
        If it cannot be written; then it holds what it held.
    """
    with replacing(path) as place:
        place.write_bytes(data)


def _beside(target: Path) -> Path | None:
    """Return a new, empty file beside `target` with its permissions; None to write in place."""
    if target.exists() and not target.is_file():
        return None
    if target.exists() and not os.access(target.parent, os.W_OK | os.X_OK):
        return None
    for _ in range(_TRIES):
        # A long name leaves no room for more; the ending says which kind of file to write.
        beside = target.with_name(f".{target.stem[:40]}-{token_hex(6)}{target.suffix[-40:]}")
        try:
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            continue
        os.close(file)
        if target.exists():
            shutil.copymode(target, beside)
        return beside
    raise FileExistsError(f"no name is free beside {target}")
