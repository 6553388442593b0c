"""The job: how its ranks meet, agree, and learn that one of them has failed."""
