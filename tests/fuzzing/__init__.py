"""Generated requests, good and bad: every one is answered, or refused with an error as documented.

``python -m tests.fuzzing --requests 100000 --seed 7`` shares so many requests among the problems,
and says what is wrong with the answers: internal errors, answers against their schema,
answers more than a second after the time limit or a cancel, `optimal` where the bound does not
prove it, bounds above objectives, and other answers to the same request. Faults alike are told
once, with a request: ``--problem P --seed S --start N --requests 1`` asks it again.

Requests are made whole (`valid`), by the schema (`oddities.by_schema`), and by damaging others.
Whatever they are, options that the schema knows are added (`oddities.enriched`), start plans among
them (`running.start_plan`). Each depends on the problem, the seed, its number, and on the
plans that are kept to start from.
"""
