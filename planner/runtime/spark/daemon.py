"""What starts the Python processes of an executor: Spark's own, with torch loaded before.

Each process is a fork of this one, and importing torch in each of them would take seconds. What is
loaded here is frozen: Spark has the garbage of a process collected after every task, and looking
through all of torch takes longer than a short task.
"""

import gc
from importlib import import_module

if __name__ == "__main__":
    for module in ("torch", "planner.runtime.spark.exchanging"):
        import_module(module)
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()
