"""Generates the inputs of the comparison benchmarks: statistics, tensors, ranks, pkl files."""

import base64
import hashlib
import json
import random
from pathlib import Path

LEAVES_PER_CALL = 4
APIS = ("linear", "gelu", "layer_norm", "softmax", "dropout")
FRAME = "File train.py, line {line}, in forward, \n x = self.layer{line}(x)"
SIDES = (("target", 1e-3), ("golden", 0.0))


def tensor(generator, noise, ours):
    """One leaf as the tool writes it. One in a hundred has its numbers scaled by 1 + `noise`."""
    numbers = [generator.uniform(-4, 4) for _ in range(4)]
    scale = 1 + (noise if generator.random() < 0.01 else 0)
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 128, 256]}
    numbers = [n * scale for n in numbers]
    if ours:
        numbers = [float(f"{n:.8g}") for n in numbers]  # as many digits as a float32 needs
    leaf.update(zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True))
    leaf["requires_grad"] = True
    if ours:
        fingerprint = (hash(tuple(leaf.values())[3:]) % 2**64).to_bytes(8, "big")
        leaf["fp"] = base64.urlsafe_b64encode(fingerprint).decode()[:11]
    return leaf


def entries(leaves, noise, ours):
    """Entry name -> entry, in execution order."""
    generator = random.Random(7)
    calls = {}
    for i in range(leaves // LEAVES_PER_CALL):
        api = APIS[i % len(APIS)]
        number = calls.get(api, 0)
        calls[api] = number + 1
        inputs = [tensor(generator, noise, ours) for _ in range(LEAVES_PER_CALL - 1)]
        output = [tensor(generator, noise, ours)]
        yield (
            f"Functional.{api}.{number}.forward",
            {"input_args": inputs, "input_kwargs": {}, "output": output},
        )


def write_dump(folder, leaves, noise, ours):
    """Writes dump.json, stack.json and construct.json in our layout or in that of msprobe 26."""
    folder.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    names = []
    with open(folder / "dump.json", "w") as out:
        if ours:
            head["tool"] = "msprobe 27.0.0"
            out.write(json.dumps(head)[:-1] + ', "data": {\n')
            for i, (name, entry) in enumerate(entries(leaves, noise, ours)):
                names.append(name)
                entry["stack"] = str(i % 64)
                line = json.dumps(name) + ": " + json.dumps(entry, separators=(",", ":"))
                out.write(("" if i == 0 else ",\n") + line)
            out.write("\n}}\n")
        else:
            data = dict(entries(leaves, noise, ours))
            names = list(data)
            json.dump({**head, "data": data}, out, indent=1)
    stacks = {
        str(i): [names[i::64], [FRAME.format(line=i)] * 6] for i in range(min(64, len(names)))
    }
    (folder / "stack.json").write_text(json.dumps(stacks, indent=1))
    (folder / "construct.json").write_text(json.dumps(dict.fromkeys(names), indent=1))


def statistics(folder: Path, leaves: int, ours: bool) -> None:
    for side, noise in SIDES:
        write_dump(folder / side, leaves, noise, ours)


# A layer: operation, what goes in, what comes out. One layer in four of the target computes `FUSED`
# in place of the operations whose results no later one takes.
LAYER = (
    ("linear", ("x", "wq"), "q"),
    ("linear", ("x", "wk"), "k"),
    ("linear", ("x", "wv"), "v"),
    ("matmul", ("q", "k"), "scores"),
    ("truediv", ("scores",), "scaled"),
    ("softmax", ("scaled",), "weights"),
    ("matmul", ("weights", "v"), "mixed"),
    ("linear", ("mixed", "wo"), "out"),
    ("add", ("x", "out"), "sum"),
    ("layer_norm", ("sum", "gain"), "normed"),
    ("linear", ("normed", "wu"), "up"),
    ("gelu", ("up",), "active"),
    ("linear", ("active", "wd"), "down"),
    ("add", ("sum", "down"), "x"),
)
FUSED = ("scaled_dot_product_attention", ("q", "k", "v"), "mixed")
INSIDE = ("scores", "scaled", "weights", "mixed")
WEIGHTS = ("wq", "wk", "wv", "wo", "wu", "wd", "gain")


def calls_of(entries, fused):
    """(operation, call, line, inputs, output) of each forward call; a value is (layer, name)."""
    numbers, calls = {}, []
    for layer in range(entries // (2 * len(LAYER))):
        steps = LAYER
        if fused and layer % 4 == 0:
            kept = [step for step in LAYER if step[2] not in INSIDE]
            steps = [*kept[:3], FUSED, *kept[3:]]
        for line, (api, inputs, output) in enumerate(steps):
            number = numbers[api] = numbers.get(api, -1) + 1
            taken = [(layer - (name == "x"), name) for name in inputs]
            calls.append((api, number, line, taken, (layer, output)))
    return calls


def leaf_of(value, noise):
    """The text of a leaf: numbers that the value's name decides, off by `noise`."""
    seed = int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest())
    top, low, mean, norm = (
        (1 + noise) * (1 + (seed >> shift) % 2**24 / 2**24) for shift in (0, 13, 26, 40)
    )
    fingerprint = (seed + int(noise * 1e9)) % 2**64
    short = base64.urlsafe_b64encode(fingerprint.to_bytes(8, "big")).decode()[:11]
    return (
        '{"type":"torch.Tensor","dtype":"torch.float32","shape":[8,128,256],'
        f'"Max":{top:.9g},"Min":{-low:.9g},"Mean":{mean:.9g},"Norm":{norm:.9g},'
        f'"requires_grad":true,"fp":"{short}"}}'
    )


def rewritten(folder: Path, entries: int) -> None:
    """Two programs of other calls: rounding from the first of them on, a wrong value at the end."""
    wrong_from = 0.9 * entries / (2 * len(LAYER))
    for side in ("target", "golden"):
        place = folder / side
        place.mkdir(parents=True)
        calls = calls_of(entries, fused=side == "target")
        sites, names = {}, {}

        def leaf(value, side=side):
            layer, name = value
            if side == "golden" or name in WEIGHTS:
                return leaf_of(value, 0)
            return leaf_of(value, 1e-2 if layer > wrong_from or name.startswith("d ") else 1e-7)

        def lines(calls=calls, leaf=leaf, sites=sites, names=names):
            for api, number, line, inputs, output in calls:
                yield f"Functional.{api}.{number}.forward", line, api, inputs, [output]
            for api, number, line, inputs, output in reversed(calls):
                taken = [(output[0], f"d {output[1]}")]
                made = [(layer, f"d {name} of {api}") for layer, name in inputs]
                yield f"Functional.{api}.{number}.backward", line, api, taken, made

        head = {
            "task": "statistics",
            "level": "L1",
            "framework": "pytorch",
            "tool": "msprobe 27.0.0",
        }
        with open(place / "dump.json", "w") as out:
            out.write(json.dumps(head)[:-1] + ', "data": {\n')
            for i, (name, line, api, taken, made) in enumerate(lines()):
                site = sites.setdefault((line, api), str(len(sites)))
                names.setdefault(site, []).append(name)
                key = "input_args" if name.endswith("forward") else "input"
                ins, outs = (",".join(map(leaf, values)) for values in (taken, made))
                comma = "" if i == 0 else ",\n"
                out.write(
                    f'{comma}"{name}": {{"{key}":[{ins}],"output":[{outs}],"stack":"{site}"}}'
                )
            out.write("\n}}\n")
        stacks = {
            number: [names[number], [f"File net.py, line {line}, in forward, \n y = {api}(x)"]]
            for (line, api), number in sites.items()
        }
        (place / "stack.json").write_text(json.dumps(stacks))


def ranks(folder: Path, count: int, leaves: int) -> None:
    """One step of `count` ranks that all recorded the same."""
    statistics(folder / "one", leaves, ours=True)
    for side, _ in SIDES:
        for rank in range(count):
            place = folder / side / "step0" / f"rank{rank}"
            place.mkdir(parents=True)
            for file in (folder / "one" / side).iterdir():
                (place / file.name).write_bytes(file.read_bytes())


def tensors(folder: Path, files: int, elements: int) -> int:
    """Writes two dumps of task tensor, each with `files` float32 tensors; returns bytes of both."""
    import torch

    values = torch.randn(elements)
    for side, noise in SIDES:
        place = folder / side / "dump_tensor_data"
        place.mkdir(parents=True)
        data = {}
        for i in range(files // 2):
            name = f"Functional.linear.{i}.forward"
            entry = {"input_kwargs": {}}
            for key, row in (("input_args", "input.0"), ("output", "output.0")):
                file = f"{name}.{row}.pt"
                values[i % elements] += noise
                torch.save(values, place / file)
                entry[key] = [
                    {
                        "type": "torch.Tensor",
                        "dtype": "torch.float32",
                        "shape": [elements],
                        "Max": 4.0,
                        "Min": -4.0,
                        "Mean": 0.0,
                        "Norm": elements**0.5,
                        "requires_grad": False,
                        "data_name": file,
                    }
                ]
            data[name] = entry
        head = {"task": "tensor", "level": "L1", "framework": "pytorch"}
        head["dump_data_dir"] = str(place)
        (folder / side / "dump.json").write_text(json.dumps({**head, "data": data}))
    return sum(path.stat().st_size for path in folder.rglob("*.pt"))


def lines(folder: Path, count: int) -> None:
    """Two pkl files of ptdbg_ascend: each call has three value lines, then a stack line."""
    for side, noise in SIDES:
        generator = random.Random(7)
        place = folder / side
        place.mkdir(parents=True)
        calls = {}
        with open(place / "dump.pkl", "w") as out:
            for i in range(count // LEAVES_PER_CALL):
                api = APIS[i % len(APIS)]
                number = calls[api] = calls.get(api, -1) + 1
                stem = f"Functional_{api}_{number}_forward"
                for part in ("input.0", "input.1", "output"):
                    scale = 1 + (noise if generator.random() < 0.01 else 0)
                    numbers = [generator.uniform(-4, 4) * scale for _ in range(3)]
                    line = [f"{stem}_{part}", 0, [], "torch.float32", [8, 128, 256], numbers]
                    out.write(json.dumps(line) + "\n")
                frame = ["/w/train.py", str(i % 64), "forward", f"x = self.layer{i % 64}(x)"]
                out.write(json.dumps([f"{stem}_stack_info", [frame] * 6]) + "\n")
