"""What the results files keep of a script's tables."""

from results import Table, load, sections


def missing(report: str, name: str) -> list[Table]:
    """Return the tables of a report that the results file of a paper does not hold as they are."""
    found = [table for section in sections(report) for table in section.tables]
    kept = [table for section in load(f"reproduction/{name}").sections for table in section.tables]
    assert found
    return [table for table in found if table not in kept]
