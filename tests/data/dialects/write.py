"""Writes the samples beside it, from what is known of the formats of the older tools.

    python tests/data/dialects/write.py

Nothing is copied from a recorded file: names, numbers and calls are made up here.
"""

import json
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
X = [1.5, -2.0, 0.25, 3.0, -0.5, 0.125]
Y = [max(v, 0.0) for v in X]
STACK = [["/w/net.py", "18", "forward", "y = F.relu(x)"], ["/w/run.py", "40", "<module>", None]]


def numbers(values):
    """Maximum, minimum, mean."""
    return [max(values), min(values), sum(values) / len(values)]


def npy(path, values, shape, code="<f4"):
    """A file of NumPy's format 1.0."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"{{'descr': '{code}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    head = head.ljust(117) + "\n"
    body = struct.pack(f"<{len(values)}{'f' if code == '<f4' else 'd'}", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + body)


def write(path, *lines):
    """Each line is a list, or a text that is written as it is."""
    path = HERE / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


def hooks(name, values):
    """A line of torch_npu.hooks: ten elements and three numbers, of all 24."""
    return [name, values, "torch.float32", [4, 6]]


def later(name, values=X, third=(), extra=(), shape=(2, 3), dtype="torch.float32", step=0):
    """A line of ptdbg_ascend."""
    return [name, step, list(third) if isinstance(third, tuple) else third, dtype, list(shape),
            numbers(values) + list(extra)]  # fmt: skip


def main():
    all_of, part = X * 4, X + X[:4]
    write("hooks_sampled/npu.pkl",
          hooks("0_Functional_relu_forward_input.0", part + numbers(all_of)),
          hooks("1_Functional_relu_forward_output", Y + Y[:4] + numbers(Y * 4)),
          hooks("2_Functional_relu_backward_input.0", part + numbers(all_of)),
          hooks("3_Functional_relu_backward_output.0", part + numbers(all_of)))  # fmt: skip
    write("hooks_full/npu.pkl",
          hooks("0_Functional_relu_forward_input.0", all_of),
          hooks("1_Functional_relu_forward_output", Y * 4))  # fmt: skip
    write("hooks_overflow/Overflow_info_20221228_101112.pkl",
          ["Torch_log_forward_stack_info.0", "File \"/w/net.py\", line 18, in forward"],
          ["Torch_log_forward_stack_info.1", "File \"/w/run.py\", line 40, in <module>"],
          ["Torch_log_forward_input.0", [0.0, 1.0], "torch.float32", [2]],
          ["Torch_log_forward_output", [float("-inf"), 0.0], "torch.float32", [2]])  # fmt: skip

    relu = [later("0_Functional_relu_forward_input.0", step=1),
            later("0_Functional_relu_forward_output", Y, step=1)]  # fmt: skip
    grad = [later("1_Functional_relu_backward_input.0", step=1),
            later("1_Functional_relu_backward_output.0", Y, step=1)]  # fmt: skip
    # The time of a folder had five digits once.
    for folder, lines, time in (
        ("ptdbg_0.1", relu + grad, "20230104_13434"),
        ("ptdbg_0.1_stack", [["0_Functional_relu_forward_stack_info", STACK], *relu], "20230104_134345"),
    ):
        write(f"{folder}/npu_dump.pkl", *lines)
        for line in lines:
            if "stack_info" not in line[0]:
                values = Y if line[0].endswith("output") else X
                npy(HERE / folder / f"npu_dump_{time}" / f"{line[0]}.npy", values, [6], "<f8")
    stem = "0_Functional_relu_forward_stack_info"
    write("ptdbg_0.1_broken/npu_dump.pkl",
          json.dumps([stem, STACK]) + json.dumps([stem + ".0", STACK[0]])
          + json.dumps([stem + ".0.0", STACK[0][0]]),
          *relu,
          '["1_Torch_add_forward_output", 1, [], "torch.fl',
          later("2_Torch_mul_forward_output", step=1))  # fmt: skip
    bare = ["Torch_log_forward_input.0", "Torch_log_forward_output"]
    write("ptdbg_0.1_overflow/Overflow_info_20230104_134530.pkl",
          ["Torch_log_forward_stack_info", STACK],
          *[[name, 101, [], "torch.float32", [2, 3]] for name in bare])  # fmt: skip
    for name in bare:
        npy(HERE / "ptdbg_0.1_overflow" / "Overflow_info_20230104_134530_20230104_134531"
            / f"{name}.npy", X, [6])  # fmt: skip

    lstm = [f"VF_lstm_99_forward_{part}" for part in ("input.0", "input.1.0", "input.1.1", "output.0")]
    rank = Path("ptdbg_2.0/ptdbg_dump_v2.0/rank0")
    write(rank / "dump.pkl", *map(later, lstm),
          ["VF_lstm_99_forward_input.3", 0, [], "<class 'bool'>", "[]", [True, True, True]],
          ["VF_lstm_99_forward_input.4", 0, [], "<class 'float'>", "[]", [0.5, 0.5, 0.5]],
          ["VF_lstm_99_forward_input.5", 0, [], "torch.bool", [2], []],
          ["VF_lstm_99_forward_input.6", 0, [], "torch.float32", [0], []],
          ["VF_lstm_99_forward_stack_info", STACK])  # fmt: skip
    for name in lstm:
        npy(HERE / rank / "dump" / f"{name}.npy", X, [2, 3])
    lines = [later("Tensor___add___0_forward_input.0"), later("Tensor___add___0_forward_output", Y)]
    # The code has the folder of the step inside that of the version; the manual draws it outside.
    write("ptdbg_3.4_inside/dump_v3.4/step0/rank0/api_stack_dump.pkl", *lines)
    write("ptdbg_3.4_outside/step0/dump_v3.4/rank0/api_stack_dump.pkl", *lines)
    write("ptdbg_4.1_overflow/Tensor___add___1_forward_1.pkl",
          *[later(f"Tensor___add___1_forward_{part}", step=101) for part in ("input.0", "output")])  # fmt: skip

    write("ptdbg_5.0/ptdbg_dump_v5.0/step0/rank0/dump.pkl",
          later("Torch_add_0_forward_input.0", extra=[4.0]),
          later("Torch_add_0_forward_input.1", [3.0, 1.0], extra=["Nan"], shape=[2], dtype="torch.int64"),
          later("Torch_add_0_forward_output", Y, extra=[3.5]))  # fmt: skip
    for folder, digits in (("md5", "0123456789abcdef" * 2), ("crc32", "89abcdef")):
        write(f"ptdbg_5.0_{folder}/dump.pkl",
              *[[f"Torch_add_0_forward_{part}", 0, digits, "torch.float32", [2, 3], []]
                for part in ("input.0", "output")])  # fmt: skip
    write("ptdbg_6.0/ptdbg_dump_v6.0/step0/rank0/dump.pkl",
          later("Tensor.to.0.forward.input.0", extra=[4.0]),
          later("Tensor.to.0.forward.output.0", extra=[4.0]),
          ["Tensor.to.0.forward.stack_info", STACK],
          later("Tensor.to.0.backward.input.0", extra=[4.0]))  # fmt: skip
    # Files that torch_npu.hooks wrote from a queue: the storage; shape and strides are in the name.
    for name, shape in (("16_Functional_relu_backward_input0_shape[2,1]_stride[1,1]", [2, 1]),
                        ("17_Functional_relu_backward_output0_shape[2,3]_stride[1,2]", [6])):  # fmt: skip
        npy(HERE / "hooks_async" / f"{name}_offset[0]_format[2].npy", X[: 2 if shape[0] == 2 else 6],
            shape)  # fmt: skip


if __name__ == "__main__":
    main()
