"""The text of the functions that generated programs call, by family.

May import no other package of ours.
"""

from functools import cache
from pathlib import Path


@cache
def header(name: str) -> str:
    """The text of a file of this package. Raises OSError where there is none of that name."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
