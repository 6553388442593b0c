"""What the fork server imports last: it leaves what it has imported to no garbage collector.

Torch is millions of objects that live as long as a worker, and the first collection of all objects
costs each worker a quarter of a second, and copies of the pages that it shares with the server.
"""

import gc

gc.collect()
gc.freeze()
