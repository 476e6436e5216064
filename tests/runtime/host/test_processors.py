"""How many processors there are: affinity, and the quotas of control groups of either version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fuse_opt.runtime.host.processors import usable_processors


@pytest.mark.parametrize(
    "groups, files, expected",
    [
        ("", {}, 8),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "250000 100000"}, 3),
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        ("0::/a/b", {"a/cpu.max": "400000 100000", "a/b/cpu.max": "500000 100000"}, 4),
        ("0::/of/the/host", {"cpu.max": "300000 100000"}, 3),
        ("0::/", {"cpu.max": "3200000 100000"}, 8),
        ("0::/", {"cpu.max": "what is this"}, 8),
        ("4:memory:/", {"memory/cpu.cfs_quota_us": "100000", "memory/cpu.cfs_period_us": "100000"}, 8),
        (
            "3:cpu,cpuacct:/docker/a",
            {"cpu,cpuacct/cpu.cfs_quota_us": "150000", "cpu,cpuacct/cpu.cfs_period_us": "50000"},
            3,
        ),
        ("3:cpu,cpuacct:/", {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_quotas(
    groups: str, files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allowed(process: int) -> set[int]:
        return set(range(8))

    monkeypatch.setattr(os, "sched_getaffinity", allowed, raising=False)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{groups}\n" if groups else "")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert usable_processors(tmp_path) == expected
