"""The command `fuse-opt`: exit status, one located line for whatever is wrong, order of passes, what goes where."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fuse_opt.dialects.fused.gpu_schedule import GPU_KNOBS
from fuse_opt.dialects.fused.knobs import KNOBS
from fuse_opt.tools.commands.fuse_opt_main import main
from fuse_opt.tools.compiler.registry import available_passes, available_targets, pass_summary

BAD_INPUTS = Path(__file__).parent / "bad_inputs"
PROGRAM = """\
func.func @main(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = graph.add %x, %y : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %1 = graph.exp %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %1 : tensor<4x8xf32>
}
"""
WRONG = PROGRAM.replace("tensor<8xf32>) -> tensor<4x8xf32>\n  %1", "tensor<8xf32>) -> tensor<4x9xf32>\n  %1").replace(
    "%0 : (tensor<4x8xf32>)", "%0 : (tensor<4x9xf32>)"
)

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    return str(path)


def expectations() -> list[tuple[str, str, int]]:
    """File, line to be named (`-`: any) and exit status, from the table beside the files."""
    table = (BAD_INPUTS / "README.md").read_text()
    rows = re.findall(r"^\| (\d\S+) \|.*\| (\S+) \| (\d) \|$", table, re.MULTILINE)
    return [(name, line, int(status)) for name, line, status in rows]


@pytest.mark.parametrize(("name", "line", "status"), expectations(), ids=lambda value: str(value))
def test_bad_input_gives_one_located_line(name: str, line: str, status: int, capsys: Capture):
    path = str(BAD_INPUTS / name)
    assert main([path]) == status
    output, errors = capsys.readouterr()
    if status == 0:
        assert errors == ""
        return
    assert output == ""
    assert "Traceback" not in errors
    assert len(errors) < len(path) + 600
    found = re.fullmatch(r"(.*):(\d+):(\d+): error: [^\n]+\n", errors)
    assert found is not None, errors
    assert found[1] == path
    assert line in ("-", found[2]), errors


def test_every_bad_input_is_tried():
    files = {path.name for path in BAD_INPUTS.iterdir() if path.name[0].isdigit()}
    assert files == {name for name, _, _ in expectations()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fuse-elementwize"], "unknown flag '--fuse-elementwize'; did you mean '--fuse-elementwise'?"),
        (["-p", "fuse-elementwize"], "unknown pass 'fuse-elementwize'; did you mean 'fuse-elementwise'?"),
        (["--fuse-elementwise=max-opz=2"], "no option 'max-opz'; did you mean 'max-ops'?"),
        (["--fuse-elementwise=max-ops=two"], "expected an integer, got 'two'"),
        (["--fuse-elementwise=max-ops=1,2"], "expected an integer, got '1,2'"),
        (["-p", "cse{"], "pipeline 'cse{'"),
        (["-p", "cse,,dce"], "pipeline 'cse,,dce'"),
        (["-p", "default{x=1}"], "takes no options"),
        (["-t", "fortran"], "unknown target 'fortran'; there is c, "),
        (["-t", "mlir{x=1}"], "target 'mlir{x=1}'"),
        (["-o"], "expected one argument"),
        (["-p"], "expected one argument"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: Sequence[str], words: str, program: str, capsys: Capture):
    assert main([program, *arguments]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert errors.startswith("fuse-opt: error: ")
    assert words in errors


@pytest.mark.parametrize("name", ["missing.mlir", ".", "a\0b"])
def test_unreadable_file_exits_with_1(name: str, tmp_path: Path, capsys: Capture):
    assert main([str(tmp_path / name)]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(r"fuse-opt: error: cannot read '.*': .+\n", errors)


def passes_run(arguments: Sequence[str], capsys: Capture) -> list[str]:
    assert main([*arguments, "--print-ir-after-all"]) == 0
    return re.findall(r"^// -----// IR after (.*) //----- //$", capsys.readouterr().err, re.MULTILINE)


def test_passes_run_in_the_order_written(program: str, capsys: Capture):
    arguments = ["--dce", program, "-p", "cse,dce", "--fuse-elementwise=max-ops=4,max-results=2", "--dce", "-p", "cse"]
    wanted = ["dce", "cse", "dce", "fuse-elementwise{max_ops=4 max_results=2}", "dce", "cse"]
    assert passes_run(arguments, capsys) == wanted


@pytest.mark.parametrize("pipeline", ["cse, dce", "builtin.module(cse,dce)", " builtin.module( cse , dce ) "])
def test_spellings_of_a_pipeline(pipeline: str, program: str, capsys: Capture):
    assert passes_run([program, "-p", pipeline], capsys) == ["cse", "dce"]


def test_only_changes_are_dumped(program: str, capsys: Capture):
    assert main([program, "--dce", "--fuse-elementwise", "--print-ir-after-change"]) == 0
    errors = capsys.readouterr().err
    assert "IR after dce: no change" in errors
    assert errors.count("func.func") == 1


def test_named_pipelines(program: str, capsys: Capture):
    assert main([program, "--default"]) == 0
    by_flag = capsys.readouterr().out
    assert main([program, "-p", "default"]) == 0
    assert capsys.readouterr().out == by_flag
    assert by_flag.count("fused.kernel") == 1
    assert main([program, "--unfused"]) == 0
    assert capsys.readouterr().out.count("fused.kernel") == 2


def test_output_file_and_nothing_on_failure(program: str, tmp_path: Path, capsys: Capture):
    target = tmp_path / "out.mlir"
    assert main([program, "-o", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert main([str(target)]) == 0
    assert capsys.readouterr().out == target.read_text()
    wrong = tmp_path / "wrong.mlir"
    wrong.write_text(WRONG)
    other = tmp_path / "other.mlir"
    assert main([str(wrong), "-o", str(other)]) == 1
    assert not other.exists()


def test_chunks_are_located_in_the_file(tmp_path: Path, capsys: Capture):
    path = tmp_path / "chunks.mlir"
    path.write_text(f"{PROGRAM}// -----\n{WRONG}// -----\n{PROGRAM}")
    assert main([str(path), "--split-input-file"]) == 1
    output, errors = capsys.readouterr()
    assert errors.startswith(f"{path}:8:3: error: 'graph.add'")
    assert output.count("func.func") == 2
    assert main([str(path), "--split-input-file", "--verify-diagnostics"]) == 0
    output, errors = capsys.readouterr()
    assert f"{path}:8:3: error: 'graph.add'" in output
    assert errors == ""


def test_remarks_as_text_and_json(program: str, tmp_path: Path, capsys: Capture):
    assert main(["--fuse-elementwise", "--remarks", program]) == 0
    assert re.search(r"program\.mlir:\d+:\d+: remark: \[fuse-elementwise\] fused: ", capsys.readouterr().err)
    target = tmp_path / "remarks.json"
    assert main([program, "--fuse-elementwise", f"--remarks={target}"]) == 0
    remarks = json.loads(target.read_text())
    assert remarks[0]["pass_name"] == "fuse-elementwise"
    assert remarks[0]["code"] == "fused"


def test_times_go_to_stderr(program: str, capsys: Capture):
    assert main([program, "--cse", "--timing"]) == 0
    output, errors = capsys.readouterr()
    assert "func.func" in output
    assert [word for word in ("parse", "verify", "cse", "print as mlir", "total") if word not in errors] == []


@pytest.mark.parametrize("target", [name for name in available_targets() if name not in ("cuda", "html")])
def test_targets_print_the_same_text_each_time(target: str, program: str, capsys: Capture):
    assert main([program, "--default", "-t", target]) == 0
    first = capsys.readouterr().out
    assert main([program, "--default", "-t", target]) == 0
    assert capsys.readouterr().out == first
    assert first.endswith("\n") and not first.endswith("\n\n")


def test_json_names_decisions(program: str, capsys: Capture):
    assert main([program, "--default", "-t", "json"]) == 0
    function = json.loads(capsys.readouterr().out)["functions"][0]
    assert [argument["name"] for argument in function["arguments"]] == ["%x", "%y"]
    kernel = function["ops"][0]
    assert kernel["op"] == "fused.kernel"
    assert kernel["operands"] == ["%x", "%y"]
    assert {"schedule", "slots", "segment"} <= kernel["properties"].keys()


def test_dot_escapes_names(tmp_path: Path, capsys: Capture):
    path = tmp_path / "names.mlir"
    path.write_text(PROGRAM.replace("@main", r'@"a\22b\\c\0Ad"'))
    assert main([str(path), "-t", "dot"]) == 0
    assert r'label = "@a\"b\\c\nd";' in capsys.readouterr().out


def test_round_trip_keeps_locations(program: str, capsys: Capture):
    assert main([program, "--print-debuginfo"]) == 0
    assert f'loc("{program}":3:3)' in capsys.readouterr().out


def test_unregistered_dialects(tmp_path: Path, capsys: Capture):
    path = tmp_path / "foreign.mlir"
    path.write_text('"foreign.op"() {a = 1 : i32} : () -> ()\n')
    assert main([str(path)]) == 1
    assert "there is no dialect 'foreign'" in capsys.readouterr().err
    assert main([str(path), "--allow-unregistered-dialect"]) == 0
    assert '"foreign.op"()' in capsys.readouterr().out


def test_list_of_knobs_is_the_record(capsys: Capture):
    assert main(["--list-knobs"]) == 0
    said = capsys.readouterr().out
    heads = [line.split()[0] for line in said.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    assert heads == [knob.name for knob in (*KNOBS, *GPU_KNOBS)]
    assert "](" not in said and "a power of two from 32 to 1024" in said


def test_list_of_passes_is_the_registry(capsys: Capture):
    assert main(["--list-passes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"--{name}" for name in available_passes()]
    assert all(pass_summary(name) for name in available_passes())


@pytest.mark.parametrize(
    ("module", "asked", "begin"),
    [
        ("fuse_opt_main", "--help", "usage:"),
        ("fuse_opt_main", "--fuse-row=help", "usage:"),
        ("fuse_opt_main", "-thelp", "targets"),
        ("fuse_run_main", "--help", "usage:"),
        ("demo", "--help", "usage:"),
    ],
)
def test_help_imports_neither_xdsl_nor_numpy(module: str, asked: str, begin: str):
    code = f"""
import sys
from fuse_opt.tools.commands.{module} import main
status = main(["{asked}"])
print([name for name in ("xdsl", "numpy") if name in sys.modules], file=sys.stderr)
sys.exit(status)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stderr == "[]\n"
    assert result.stdout.startswith(begin)


def test_closed_pipe_is_quiet(program: str):
    command = f"{sys.executable} -m fuse_opt.tools.commands.fuse_opt_main '{program}' | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.stderr == ""
