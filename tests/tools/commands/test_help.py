"""Help: whole, aligned, and with nothing in it that a pass does not say itself."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from fuse_opt.passes import deprecated_spellings
from fuse_opt.tools.commands import fuse_opt_main, fuse_pack, fuse_run_main
from fuse_opt.tools.commands.command import COLUMN, WIDTH
from fuse_opt.tools.compiler.pass_docs import group_summary, pass_docs, pass_groups, shared_options
from fuse_opt.tools.compiler.pipeline import PIPELINES, UsageError, make_passes, parse_pass_flag
from fuse_opt.tools.compiler.registry import available_passes, available_targets
from fuse_opt.tools.tuning import fuse_tune_main

Capture = pytest.CaptureFixture[str]
PASSES = list(available_passes())
COMMANDS = {
    "fuse-opt": fuse_opt_main.main,
    "fuse-run": fuse_run_main.main,
    "fuse-pack": fuse_pack.main,
    "fuse-tune": fuse_tune_main.main,
}


def printed(capsys: Capture, *arguments: str, command: str = "fuse-opt") -> str:
    assert COMMANDS[command](arguments) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    return output


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_usage_and_a_sentence(command: str, capsys: Capture) -> None:
    text = printed(capsys, "--help", command=command)
    usage, sentence, *_ = text.split("\n\n")
    assert usage.startswith(f"usage: {command} ")
    assert re.fullmatch(r"[A-Z][^\n`]+\.", sentence)
    assert max(map(len, text.splitlines())) <= WIDTH


def test_help_of_tuning_is_of_programs_and_names_the_rest(capsys: Capture) -> None:
    text = printed(capsys, "--help", command="fuse-tune")
    assert "--minutes M" in text and "fuse-tune dispatch" in text and "fuse-tune calibrate" in text
    for what in ("dispatch", "calibrate"):
        assert f"fuse-tune {what} " in printed(capsys, what, "--help", command="fuse-tune").partition("\n\n")[0]


@pytest.mark.parametrize("name", PASSES)
def test_every_option_is_read_as_it_is_and_has_a_doc(name: str) -> None:
    class_: Any = available_passes()[name]()
    stated = [field for field in fields(class_) if field.init and field.name != "name"]
    options = pass_docs(name).options
    assert [option.name for option in options] == [field.name.rstrip("_").replace("_", "-") for field in stated]
    for option, field in zip(options, stated, strict=True):
        assert re.fullmatch(r"[A-Z`].*\.", option.doc), option
        assert not re.search(r"\b(None|True|False|tuple)\b|\w\(\)", option.text), option
        assert re.fullmatch(r"|N|X|WORD|WORD,\.\.\.|[a-z]+(\|[a-z]+)+", option.values), option
        assert field.default is not MISSING
        if option.default:
            (pass_,) = parse_pass_flag(name, f"{option.name}={option.default}")
            assert getattr(pass_, field.name) == field.default
        else:
            assert field.default in (None, (), "")


@pytest.mark.parametrize("name", PASSES)
def test_help_of_a_pass(name: str, capsys: Capture) -> None:
    text = printed(capsys, f"--{name}=help", "no/such/file.mlir")
    assert text.startswith(f"usage: fuse-opt [FILE] --{name}")
    assert f"\n{available_passes()[name]().__doc__}".partition("\n\n")[0].strip().split("\n")[0] in text
    rows = re.findall(r"^  ([a-z-]+)(?:=\S+)?(?:  |$)", text.partition("\noptions:\n")[2], re.MULTILINE)
    assert rows == [option.name for option in pass_docs(name).options]


@pytest.mark.parametrize("name", PIPELINES)
def test_help_of_a_pipeline_names_its_passes(name: str, capsys: Capture) -> None:
    text = printed(capsys, f"--{name}=help")
    listed = "".join(text.partition("\n\n")[2].split())
    assert make_passes(listed) == make_passes(name)


def test_help_after_two_dashes_is_a_file(capsys: Capture) -> None:
    assert fuse_opt_main.main(["--", "--cse=help"]) == 1
    assert "cannot read '--cse=help'" in capsys.readouterr().err


def test_groups_are_the_packages_and_hold_every_pass_once(capsys: Capture) -> None:
    groups = pass_groups()
    assert sorted(name for names in groups.values() for name in names) == sorted(PASSES)
    text = printed(capsys, "--help")
    headings = [f"{folder.removeprefix('passes/')}: {group_summary(folder)}" for folder in groups]
    assert all(f"\n{heading}\n" in text for heading in headings)
    assert all(len(re.findall(rf"^  --{name}(?:  |$)", text, re.MULTILINE)) == 1 for name in (*PASSES, *PIPELINES))
    order = [line.partition(":")[0] for line in text.splitlines() if line in headings]
    assert order[0] == "simplify" and order.index("fusion") < order.index("memory") < order.index("lowering/convert")


def test_options_are_aligned_and_listed_once_where_they_are_stated(capsys: Capture) -> None:
    text = printed(capsys, "--help").partition("passes, in groups")[2]
    rows = [line for line in text.splitlines() if re.match(r" {6}[a-z]", line)]
    wanted = [option for name in PASSES for option in pass_docs(name).own_options]
    assert len(rows) == len(wanted) + sum(map(len, shared_options()))
    beside = [row for row in rows if "  " in row.strip()]  # text that an option leaves no room for is in the next line
    assert len(beside) > len(rows) // 2
    assert all(row[COLUMN - 1] == " " and row[COLUMN] != " " for row in beside)
    assert "except=WORD,..." in text and "except-" not in text and "max_ops" not in text
    for options, names in shared_options().items():
        assert len(names) > 1 and len({option.stated_by for option in options}) == 1


def test_targets_are_a_table_of_one_line_each(capsys: Capture) -> None:
    head, *rows = printed(capsys, "-t", "help").splitlines()
    assert head == "targets of -t:"
    assert [row.split()[0] for row in rows] == list(available_targets())
    assert "\n".join(rows) in printed(capsys, "--help")


OLD = {"cse": {"shape": "form"}, "plan-memory": {"align": "alignment"}}


def test_deprecated_flags_work_with_one_warning(tmp_path: Path) -> None:
    file = tmp_path / "buffers.csv"
    file.write_text("id,lower,upper,size\na,0,2,8\n")

    def run(*flags: str) -> str:
        command = [sys.executable, "-m", "fuse_opt.tools.commands.fuse_pack", str(file), *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert '"arena": 8' in done.stdout
        return done.stderr

    warning = "fuse-pack: warning: '--no-core' of fuse-pack is now '--no-native'; the old spelling will go\n"
    assert run("--no-core", "--no-core") == warning
    assert run("--no-native") == ""


@pytest.mark.parametrize("text", ["plan-memory{align=128}", "plan-memory{alignment=128}"])
def test_deprecated_options_of_passes(text: str, monkeypatch: Any, recwarn: pytest.WarningsRecorder) -> None:
    monkeypatch.setattr(deprecated_spellings, "RENAMED", OLD)
    (pass_,) = make_passes(text)
    assert getattr(pass_, "alignment") == 128  # noqa: B009
    assert [str(warning.message) for warning in recwarn] == (
        ["'align' of plan-memory is now 'alignment'; the old spelling will go"] if "align=" in text else []
    )
    with pytest.raises(UsageError, match="no option 'form'"):
        make_passes("cse{shape=1}")


def test_new_spellings_are_in_help_and_old_ones_are_not(capsys: Capture) -> None:
    for owner, renamed in deprecated_spellings.RENAMED.items():
        for old, new in renamed.items():
            if owner in PASSES:
                names = [option.name for option in pass_docs(owner).options]
                assert new in names and old not in names
            elif owner in COMMANDS:
                text = printed(capsys, "--help", command=owner)
                assert new in text and old not in text
