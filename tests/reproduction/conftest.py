"""The scripts of `benchmarks/reproduction` import each other as scripts do: by bare names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "reproduction"))
