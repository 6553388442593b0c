"""Error messages of a command, on standard error and for the launcher of a job.

The processes of a job share their standard error, so each message names its rank and is written in
one piece. torchrun shows the content of the file that TORCHELASTIC_ERROR_FILE names.
"""

import json
import os
import sys
import time
from pathlib import Path

from planner.model.units import escaped


def complain(text: str) -> None:
    """Print why this process ends, and record it for the launcher if there is one."""
    rank = os.environ.get("RANK", "")
    text = escaped(text, keep="\n")
    whose = f"rank {rank}: " if rank and os.environ.get("WORLD_SIZE", "1") != "1" else ""
    if sys.stderr is not None:
        sys.stderr.write(f"{whose}{text}\n")
        sys.stderr.flush()
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file:
        record = {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}
        try:
            Path(file).write_text(json.dumps({"message": record}), "utf-8")
        except OSError:
            return  # standard error has the message already
