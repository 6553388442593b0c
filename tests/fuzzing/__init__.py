"""A seeded source of odd and valid requests, and what is wrong with their answers.

    python -m tests.fuzzing --problem bml --count 10000 --seed 1

Requests are made whole (`valid`), by the schema (`by_schema`) and by damaging others (`oddities`);
each is answered within limits, as in a stream, and some as library calls too (`running`). Reported
are internal errors, answers against their schema, answers that take longer than their
``time_limit_s`` and half a second of processor time, that exceed a limit or 1 GB, and library
calls that answer something else.
"""
