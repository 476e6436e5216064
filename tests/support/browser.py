"""Opens pages in a headless Chromium: what the console says, how texts stand against their ground, pictures of windows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium in PATH to open the page in")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
    *("--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"),
)
_GREY = "<style>html { filter: grayscale(1); }</style>"
_MEASURE = Path(__file__).with_name("page_measures.js")


def console(page: Path, width: int = 1280, *, flags: tuple[str, ...] = ()) -> list[str]:
    """What a page writes to the console while it is opened, errors of scripts and of things that are not found among them."""
    return _lines(_open(page, width, "--dump-dom", *flags).stderr)


def measures(page: Path, width: int, *, flags: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `page_measures.js` finds in a page in a window of some width, at which all that can be opened is open."""
    copy = page.with_name(f"{page.stem}-measured.html")
    script = f"<script>{_MEASURE.read_text(encoding='utf-8')}</script>"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{script}</body>"), encoding="utf-8")
    done = _open(copy, width, "--dump-dom", *flags)
    found = re.search(r'data-measures="([^"]*)"', done.stdout)
    assert found is not None, _lines(done.stderr)
    return json.loads(unescape(found[1]))


def screenshot(page: Path, width: int, height: int, to: Path, *, grey: bool = False) -> tuple[int, int]:
    """Writes a picture of a window on a page, `grey` of one without colours; its extents, as the picture has them."""
    if grey:
        copy = page.with_name(f"{page.stem}-grey.html")
        text = page.read_text(encoding="utf-8")
        copy.write_text(text.replace("</head>", f"{_GREY}</head>"), encoding="utf-8")
        page = copy
    _open(page, width, f"--screenshot={to}", height=height)
    head = to.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def _open(page: Path, width: int, *flags: str, height: int = 900) -> subprocess.CompletedProcess[str]:
    profile = page.with_name(f"{page.stem}-profile")
    command = [str(BROWSER), *_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}", *flags]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    shutil.rmtree(profile, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    return done


def _lines(log: str) -> list[str]:
    return [line for line in log.splitlines() if ":CONSOLE" in line]
