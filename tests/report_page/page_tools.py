"""Small dumps of a model in which one operation is wrong, and their pages."""

import json
import subprocess
from pathlib import Path

LAYERS = 3
WRONG = ("Functional.gelu.1.forward", 1e-2)  # the call and its relative error
HOSTILE = "Functional.<img src=x onerror=alert(1)>\u202e</script>"
# The steps of a run, the first that is wrong, and the parameters (write_step).
STEPS, WRONG_STEP = 6, 4
PARAMETERS = ("embed.weight", "fc.weight", "fc.bias")


def tensor(number, by=0.0, shape=(4, 8)):
    numbers = [number * (1 + by), -number * (1 + by), number / 100, number * 3 * (1 + by)]
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape)}
    leaf.update(zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True))
    return leaf | {"requires_grad": True}


def entry(source, result, by_in=0.0, by_out=0.0):
    return {
        "input_args": [tensor(source, by_in)],
        "input_kwargs": {},
        "output": [tensor(result, by_out)],
    }


def calls(wrong, extra, hostile, rewritten):
    """Entry name -> (entry, entry of the parent module)."""
    found, by, value = {}, 0.0, 1.0
    for layer in range(LAYERS):
        parent = f"Module.layers.{layer}.mlp.MLP.forward.0"
        first, start = value, by
        for api in ("linear", "gelu"):
            name = f"Functional.{api}.{layer}.forward"
            if rewritten and name == WRONG[0]:
                found["Torch.mul.0.forward"] = (entry(value, value + 40), parent)
                after = WRONG[1] if wrong else by
                name, source = "Torch.tanh.0.forward", value + 40
                found[name] = (entry(source, value + 1.25, by, after), parent)
                value, by = value + 1.25, after
                continue
            after = WRONG[1] if wrong and name == WRONG[0] else by
            found[name] = (entry(value, value + 1.25, by, after), parent)
            value, by = value + 1.25, after
        found[parent] = (entry(first, value, start, by), None)
        if extra and layer == 0:
            found["Torch.clone.0.forward"] = (entry(value, value), None)
    for layer in reversed(range(LAYERS)):
        name = f"Functional.gelu.{layer}.backward"
        found[name] = (entry(value, value + 0.5, by, by), None)
        value += 0.5
    for name in hostile:
        found[name] = (entry(value, value + 0.5, by, by), None)
        value += 0.5
    return found


def write_dump(
    folder: Path, wrong=False, extra=False, hostile=(), source="train.py", rewritten=False
):
    """`rewritten`: other calls compute what the call in WRONG computes."""
    folder.mkdir(parents=True)
    found = calls(wrong, extra, hostile, rewritten)
    head = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    data = {name: value for name, (value, _) in found.items()}
    (folder / "dump.json").write_text(json.dumps({**head, "data": data}))
    (folder / "construct.json").write_text(
        json.dumps({name: parent for name, (_, parent) in found.items()})
    )
    frames = {
        api: [f"File {source}, line {line}, in forward, \n {text}"]
        for api, line, text in (
            ("linear", 2, "x = F.linear(x, self.weight)"),
            ("gelu", 3, "x = F.gelu(x)"),
            ("clone", 4, "x = torch.clone(x)"),
            ("mul", 5, "x = torch.mul(x, x)"),
            ("tanh", 6, "return torch.tanh(x)"),
        )
    }
    stacks = {
        api: [[name for name in found if f".{api}." in name and "forward" in name], frame]
        for api, frame in frames.items()
    }
    (folder / "stack.json").write_text(json.dumps(stacks))


def write_tensor_dump(folder: Path, numbers):
    """A dump of task tensor with one call. `numbers`: a NumPy array, what the call returns."""
    import numpy

    tensors = folder / "dump_tensor_data"
    tensors.mkdir(parents=True)
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(numbers.shape)}
    leaf |= {"Max": float(numpy.nanmax(numbers)), "Min": float(numpy.nanmin(numbers))}
    leaf |= {"Mean": float(numpy.nanmean(numbers)), "Norm": float(numpy.nansum(numbers**2) ** 0.5)}
    leaf |= {"requires_grad": False, "data_name": "Torch.mul.0.forward.output.0.npy"}
    numpy.save(tensors / leaf["data_name"], numbers)
    head = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": str(tensors)}
    call = {"input_args": [], "input_kwargs": {}, "output": [leaf]}
    (folder / "dump.json").write_text(json.dumps({**head, "data": {"Torch.mul.0.forward": call}}))


def write_gradients(folder: Path, steps, norms):
    """A recording of task grad_probe, level L0: of each parameter the norm in each step."""
    folder.mkdir(parents=True)
    for step in range(steps):
        rows = [f"{name},1,{norm(step)},[4]" for name, norm in norms.items()]
        table = "\n".join(["param_name,max,norm,shape", *rows, ""])
        (folder / f"grad_summary_{step}.csv").write_text(table)


def write_step(folder, step, wrong):
    """One module with three weights and their gradients; the gradient of fc.bias may be wrong."""
    folder.mkdir(parents=True)
    data = {}
    for path, names in (("embed.Embedding", ["weight"]), ("fc.Linear", ["weight", "bias"])):
        forward = f"Module.{path}.forward.0"
        data[forward] = {
            "input_args": [tensor(1.0 + step)],
            "input_kwargs": {},
            "parameters": {name: tensor(2.0 + step + len(name)) for name in names},
            "output": [tensor(3.0 + step)],
        }
    for path, names in (("fc.Linear", ["weight", "bias"]), ("embed.Embedding", ["weight"])):
        data[f"Module.{path}.parameters_grad"] = {
            name: [tensor(5.0 / (1 + step) + len(name), 0.1 if wrong and name == "bias" else 0)]
            for name in names
        }
    head = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps({**head, "data": data}))


def run_compare(binary, folder, *flags):
    page = folder / "report.html"
    command = [binary, "compare", "target", "golden", "-o", "out", "--html", str(page), *flags]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return page


def until(page, expression):
    """Waits. Playwright's own wait_for_function needs eval, which the page's policy forbids."""
    for _ in range(300):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError("never true: " + expression)
