"""Old spellings of options, flags and entries: taken for one release, with one warning for each."""

from __future__ import annotations

import warnings

RENAMED: dict[str, dict[str, str]] = {
    "fuse-pack": {"--no-core": "--no-native"},
    "device": {"dear": "recompute_limit"},
}
"""By the pass, command or kind of file that has them: old spelling -> new one, as users write both."""


def current_spelling(owner: str, spelling: str) -> str:
    """The spelling of today; an old one gives a FutureWarning, which commands print as one line."""
    current = RENAMED.get(owner, {}).get(spelling)
    if current is None:
        return spelling
    warnings.warn(f"'{spelling}' of {owner} is now '{current}'; the old spelling will go", FutureWarning, stacklevel=2)
    return current
