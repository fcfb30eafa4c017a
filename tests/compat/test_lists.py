"""ptdbg_ascend 3 and later: the user's own list of APIs, and APIs that are not recorded."""

import sys
import types

import pytest
import torch
from older_scripts import RANK0, X, error_of, names, net, run_in
from torch.nn import functional as F

import ptdbg_ascend as ptdbg

FUSED = "torch_npu:\n  - npu_scaled_masked_softmax\n  - npu_mine\n"


def fake_torch_npu():
    """A module with two fused functions, for hardware that we do not have."""
    module = types.ModuleType("torch_npu")
    exec(
        "import torch\n"
        "def npu_scaled_masked_softmax(x, mask, scale, fixed):\n"
        "    return torch.softmax(x * scale + mask, -1)\n"
        "def npu_mine(x): return x + 1\n",
        module.__dict__,
    )
    sys.modules["torch_npu"] = module
    return module


def dump(function):
    ptdbg.set_dump_path("dump")
    ptdbg.register_hook(net(), ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON")
    function()
    ptdbg.set_dump_switch("OFF")


def recorded(tmp_path):
    return names(tmp_path / "dump" / RANK0 / "dump.pkl")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Writes the user's own list of APIs."""

    def write(text):
        (tmp_path / "own.yaml").write_text(text)
        monkeypatch.setenv("MSPROBE_WRAP_OPS", str(tmp_path / "own.yaml"))

    return write


def test_R_C_U2_a_fused_operator_of_the_shipped_list(tmp_path):
    """With a fake torch_npu."""

    def program():
        npu = fake_torch_npu()
        dump(lambda: npu.npu_scaled_masked_softmax(X, X, 0.5, False))

    run_in(tmp_path, program)
    assert {name.rsplit("_", 1)[0] for name in recorded(tmp_path)} == {
        "NPU_npu_scaled_masked_softmax_0_forward"
    }


def test_R_C_U2_a_fused_operator_of_the_users_list(tmp_path, own):
    """With a fake torch_npu."""
    own(FUSED)

    def program():
        npu = fake_torch_npu()
        dump(lambda: npu.npu_mine(X))

    _, said = run_in(tmp_path, program)
    assert recorded(tmp_path) == ["NPU_npu_mine_0_forward_input.0", "NPU_npu_mine_0_forward_output"]
    assert "not observed: category" not in said


def test_R_C_U2_without_an_npu_there_is_one_warning(tmp_path, own):
    own(FUSED)
    _, said = run_in(tmp_path, lambda: [dump(lambda: F.relu(X)) for _ in range(2)])
    assert said.count("category torch_npu (torch_npu is not imported)") == 1
    assert recorded(tmp_path)


def test_R_C_E6_a_name_that_nobody_has_gets_one_line(tmp_path, own):
    own("torch:\n  - no_such_op\nTensor:\n  - -neither_this\n")
    _, said = run_in(tmp_path, lambda: dump(lambda: F.relu(X)))
    assert said.count("no_such_op") == 1 and said.count("-neither_this") == 1
    assert recorded(tmp_path)


@pytest.mark.parametrize("section", ["Tensor", "tensor"])
def test_R_C_E17_to_19_apis_can_be_left_out(section, tmp_path, own):
    own(f"{section}:\n  - -t\n  - -transpose\n  - -__getitem__\nfunctional:\n  - -gelu\n")

    def program():
        def calls():
            F.gelu(X.t().transpose(0, 1)[0])
            F.relu(X)

        dump(calls)

    run_in(tmp_path, program)
    assert {name.split("_")[1] for name in recorded(tmp_path)} == {"relu"}


@pytest.mark.parametrize("text", ["- a list\n", "torch: 3\n", "{", None])
def test_R_C_U2_a_damaged_list_is_refused_where_the_dump_begins(text, tmp_path, own):
    own(text or "")
    if text is None:
        (tmp_path / "own.yaml").unlink()
    types_, _, said = run_in(tmp_path, lambda: error_of(dump, lambda: torch.relu(X)))[0]
    assert "MsprobeError" in types_ and "own.yaml" in said
