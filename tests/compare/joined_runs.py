"""One training in several layouts, in a few kilobytes: two steps of a layer. Ranks have parts of
its hidden units, or of the batch. One process has it whole."""

import hashlib
import json
import random

STEPS = 2
ROWS, UNITS = 4, 8


def matrix(rows, columns, seed):
    source = random.Random(seed)
    return [[source.gauss(0, 1) for _ in range(columns)] for _ in range(rows)]


def times(a, b):
    """a with b transposed, as linear has its weight."""
    return [[sum(x * y for x, y in zip(u, v, strict=True)) for v in b] for u in a]


def plus(a, b):
    return [[x + y for x, y in zip(u, v, strict=True)] for u, v in zip(a, b, strict=True)]


def columns(a, begin, end):
    return [row[begin:end] for row in a]


def recorded(a):
    flat = [x for row in a for x in row]
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [len(a), len(a[0])],
        "Max": max(flat),
        "Min": min(flat),
        "Mean": sum(flat) / len(flat),
        "Norm": sum(x * x for x in flat) ** 0.5,
        "requires_grad": False,
        "fp": hashlib.sha256(repr([f"{x:.9e}" for x in flat]).encode()).hexdigest()[:16],
    }


def call(given, made, **more):
    values = {"input_args": [recorded(a) for a in given], "input_kwargs": {}}
    return values | {"output": [recorded(made)]} | more


def layer(x, up, down, factor):
    hidden = times(x, up)
    positive = [[factor * max(value, 0.0) for value in row] for row in hidden]
    return hidden, positive, times(positive, down)


def dump(rank, ranks, step, wrong, of_batch):
    x, up, down = (matrix(ROWS, UNITS, 100 * step), matrix(UNITS, UNITS, 1), matrix(4, UNITS, 2))
    addends = []
    for i in range(ranks):
        factor = 1.5 if i == wrong else 1.0
        share = (ROWS if of_batch else UNITS) // ranks
        begin, end = i * share, (i + 1) * share
        x_of, up_of, down_of = (x[begin:end], up, down)
        if not of_batch:
            x_of, up_of, down_of = (x, up[begin:end], columns(down, begin, end))
        made = layer(x_of, up_of, down_of, factor)
        addends.append(made[2])
        if i == rank:
            given, mine, part, (hidden, positive, addend) = (x_of, up_of, down_of, made)
    data = {
        "Functional.linear.0.forward": call([given, mine], hidden),
        "Functional.relu.0.forward": call([hidden], positive),
        "Functional.linear.1.forward": call([positive, part], addend),
    }
    whole = addend
    if ranks > 1 and not of_batch:
        whole = addends[0]
        for each in addends[1:]:
            whole = plus(whole, each)
        group = {"ranks": list(range(ranks)), "id": "1", "rank": rank}
        data["Distributed.all_reduce.0.forward"] = call([addend], whole, group=group)
    data["Tensor.tanh.0.forward"] = call([whole], [[value / 9 for value in row] for row in whole])
    groups = [{"ranks": list(range(ranks)), "name": "0"}] if ranks > 1 else []
    weights = {"up": recorded(mine), "down": recorded(part)}
    heading = {
        "task": "statistics",
        "level": "L1",
        "framework": "pytorch",
        "tool": "msprobe 27.0.0",
        "provenance": {"torch": "2.13.0", "parallel": {"groups": groups, "meshes": []}},
    }
    return heading | {"data": data}, weights


def write_run(folder, ranks, wrong=-1, of_batch=False):
    """`wrong`: the rank whose relu makes one and a half of what it should."""
    for step in range(STEPS):
        for rank in range(ranks):
            place = folder / f"step{step}" / (f"rank{rank}" if ranks > 1 else "rank")
            place.mkdir(parents=True)
            entries, weights = dump(rank, ranks, step, wrong, of_batch)
            head = json.dumps({key: value for key, value in entries.items() if key != "data"})
            lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in entries["data"].items()]
            text = head[:-1] + ', "data": {\n' + ",\n".join(lines) + "\n}}\n"
            (place / "dump.json").write_text(text)
            (place / "weights.json").write_text(json.dumps(weights))


def write_joined_runs(folder):
    """Tensor-parallel runs on 1, 2 and 4 ranks, one of which rank 2 is wrong, and one on 4 ranks
    that have parts of the batch."""
    for name, ranks in (("one", 1), ("two", 2), ("four", 4)):
        write_run(folder / name, ranks)
    write_run(folder / "bad", 4, wrong=2)
    write_run(folder / "batch", 4, of_batch=True)
    return folder
