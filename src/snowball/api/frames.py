"""Tables of records: DataFrames where pandas is installed."""

from typing import Any

Frame = Any
"""A pandas DataFrame, or a list of records if pandas is not installed."""


def make_frame(records: list[dict[str, Any]]) -> Frame:
    """Make a DataFrame of records, one row each; without pandas, return them as they are."""
    try:
        import pandas
    except ImportError:
        return records
    return pandas.DataFrame.from_records(records)
