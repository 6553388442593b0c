"""Write files atomically: a file appears whole or not at all.

A full disk or a stopped process must not leave half a plan in place of a whole one. The data goes
to a new file in the same folder, which is then renamed: an atomic operation. A symbolic link stays
a link, and the file it points to keeps its permissions. Devices and pipes, and files in a folder
without write permission, are written in place.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from planner.model.errors import PlannerError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path with the same suffix, and rename it to `path` after the block.

    If the block fails or the file cannot be written, `path` keeps its content.
    """
    target = Path(os.path.realpath(path))
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
    """Turn OSError in the block into a PlannerError about `what`; BrokenPipeError passes."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PlannerError(f"{what}: cannot be written: {error.strerror or error}") from None


def write_file(path: str | Path, data: bytes) -> None:
    """Write a file atomically; after an error it keeps its content."""
    with replacing(path) as place:
        place.write_bytes(data)


def _beside(target: Path) -> Path | None:
    """Return a new, empty file in the folder of `target`; None to write in place."""
    if target.exists() and not target.is_file():
        return None
    if target.exists() and not os.access(target.parent, os.W_OK | os.X_OK):
        return None
    # The name is cut to leave room; the suffix stays, for it selects the file format.
    beside = target.with_name(f".{target.stem[:40]}-{token_hex(6)}{target.suffix[-40:]}")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    if target.exists():
        shutil.copymode(target, beside)
    return beside
