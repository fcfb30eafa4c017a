"""Makes the corpus of each fuzz target: valid inputs of its reader, most of them recorded."""

import io
import itertools
import json
import struct
import sys
import zipfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from recorded import recorded  # noqa: E402

DATA = ROOT / "tests" / "data"
CASES = ROOT / "tests" / "compare" / "cases"
APART = b"\x1e"  # separates the files of one input

CONFIGS = (
    b'{"task":"statistics","dump_path":"d","rank":[0,"1-3"],"step":["2","4-5"],"level":"mix",'
    b'"extra_info":false,"risk_level":"CORE","async_dump":true,"weights":"first_step","dump_enable":true,"seed":7,'
    b'"is_deterministic":false,"custom_op_namespaces":["mine"],"statistics":{"scope":'
    b'["Module.a.Linear.forward.0","Module.b.Linear.forward.0"],"list":["relu"],"data_mode":'
    b'["forward","input"],"data_mode_rule":"or","summary_mode":["md5","max","zero count"],'
    b'"tensor_list":["linear"],"slice":[{"dim":0,"size":128,"begin":0,"end":-1}],"request_id":"r"}}',
    b'{"task":"tensor","level":"L1","tensor":{"bench_path":"golden","diff_nums":-1,"list":[]}}',
    b'{"task":"overflow_check","level":"L1","overflow_check":{"overflow_nums":3,"check_mode":"all"}}',
    b'{"task":"grad_probe","grad_probe":{"grad_level":"L2","param_list":["w"],"bounds":[-1,0,1e3]}}',
    b'{"task":"nan_check","nan_check":{"tensor_list":["softmax"],"data_mode":"all"}}',
    b'{"task":"statistics","level":"L2","seed":1234,"enable_dataloader":true,"acl_config":""}',
)
COVERAGES = (
    b'{"schema":"msprobe.coverage/1","apis":{"recorded":3,"nested":1,"ignored":0,"traced":0},'
    b'"modules":{"recorded":2,"ignored":0,"traced":0},"gradients":{"recorded":3,"missing":1},'
    b'"operations":{"recorded":3,"nested":9,"gradient":4,"ignored":0,"not_observed":2,'
    b'"compiled_regions":1},"not_observed":[{"operation":"aten::view","count":2,"reason":"no"}],'
    b'"apis_not_observed":[{"api":"Torch.foo","reason":"flags"}]}',
    b'{"schema":"msprobe.coverage/1","apis":{"recorded":3,"nested":1,"ignored":0,"traced":0},'
    b'"modules":{"recorded":0,"ignored":0,"traced":0},"gradients":{"recorded":0,"missing":0},'
    b'"operations":null,"why_no_operations":"first step only","not_observed":[],'
    b'"apis_not_observed":[]}',
)
RUN_LOGS = (
    b"weight\t0123456789abcdef\tfc.weight\nrandom\tfedcba9876543210\ttorch\nstep\t12345\n"
    b"loss\t0000000000000001\tbackward 0\ngradient\t00000000000000ff\tfc.weight\nstep\t777\n"
    b"note\ttool on\nweight\t0123456789abcdef\tfc.weight\nend\n",
)
WEIGHTS = (b'{"schema":"msprobe.weights/1","weights":{"fc.weight":"0123456789abcdef","b":null}}',)
TEXTS = ('Tensor.add.0.forward\0=1+1\0\uff1dfx\0a,"b"\nc\r\0\u20ac\U0001f600\0\x01\x1f-2'.encode(),)
INDICES = (
    b'{"metadata":{"total_size":8},"weight_map":{"a.w":"model-1.safetensors","b":"x.bin"}}',
    b'{"metadata":{"total_size":8},"weight_map":{"a.w":"model-1.safetensors"}}',
    b"12\n",
    b"release",
)
SHEETS = (
    b"<worksheet><sheetData><row r='1'><c r='A1' t='s'><v>0</v></c><c t='inlineStr'><is><t>a&amp;"
    b"_x0007_</t></is></c></row><row><c r='C2'><v>1.5</v></c></row></sheetData></worksheet>\0"
    b"<sst><si><t>NPU Name</t></si></sst>",
    b'Name,"a,""b"\nc"\r\n,\n\n1',
)
MAPPINGS = (
    b"net.fc.Dense: net.fc.Linear\nencoder: backbone\n",
    b"- ms_api: Functional.abs\n  pt_api: Torch.abs\n  ms_args: [0, 1]\n  pt_args: [1, 0]\n"
    b"- {ms_api: a, pt_api: b, ms_output: [0], pt_outputs: [1], ms_parameters: [w],"
    b" pt_parameters: [weight], ms_parameters_grad: [], pt_parameters_grad: []}\n",
    b"TopLayer:\n  backbone: model\nBlock:\n  attn.qkv: self_attention.linear_qkv\n",
    rb"s/layers\.([0-9]+)/blocks.\1/gi",
    b"s|a/b|[&]|",
)
NAMES = (
    b"- ms_api: Functional.add\n  pt_api: Torch.add\n  ms_args: [0]\n  pt_args: [0]\n"
    b"  ms_outputs: [0]\n  pt_outputs: [0]\n",
    b"fc.Dense: fc.Linear\nnet: net\n",
    b"TopLayer:\n  net: net\nDense:\n  fc: fc\n",
    b"Functional.add.0.forward.input.0: Torch.add.0.forward.input.0\n",
)
LAYOUTS = (
    b"target_mesh: {tp: 2}\ngolden_mesh: {tp: 2}\ndims:\n  '*.gelu.*': 'b (h/tp d)'\n"
    b"  '*.linear.1.*output*': 'b d +tp'\norder: {tp: zigzag}\nmodules: {'a.*': 'b.*'}\n"
    b"gradient_factor: 2\nignore: ['*.drop.*']\n",
    b"target_mesh: {dp: 2}\n",
)
COMPARE_INPUTS = (
    b'{"npu_path":"b/dump.json","bench_path":"a/dump.json","stack_path":"","rank_id":"0",'
    b'"is_print_compare_log":false}',
    b'{"npu_path":"b","bench_path":"a","is_print_compare_log":true}',
    b'{"npu_json_path":"b","bench_json_path":"a","stack_json_path":"b/stack.json"}',
    b'{"npu_path":{},"common":[0],"map_dict":{"a":"b"}}',
)
THRESHOLDS = (
    b"rules_8: {cosine: 0.95}\nrounding:\n  float16: 16\n",
    b"overrides:\n  - operation: softmax\n    dtype: float16\n    rounding: 16\n"
    b"    table26_rules: {input_norm: 1e-3}\n    highlight: {order_from: 2}\n",
)


def text(value):
    return struct.pack("<q", len(value)) + value


# Of compare --part: its number, their number, two paths, what is left out, places, results; of
# ranks that are joined the pairs, flags, files and copies. A result whose fields are all zero is
# right, but for the exchange that brought the error: none.
COPIED = b'{"task": "statistics", "data": {\n}}\n'
PARTS = [
    struct.pack("<7q", 1, 1, 0, 0, 0, 0, 0) + bytes(32),
    struct.pack("<6q", 1, 1, 0, 0, 0, 0)
    + struct.pack("<q", 1)
    + bytes(752)
    + struct.pack("<q", -1)
    + bytes(240 + 32),
    struct.pack("<3q", 1, 2, 1) + b"a" + struct.pack("<q", 1) + b"b" + bytes(24 + 32),
    struct.pack("<2q", 1, 1)
    + text(b"a")
    + text(b"b")
    + bytes(24)
    + struct.pack("<3q", 1, 0, -1)  # a pair
    + text(b"a")
    + text(b"b")
    + struct.pack("<2q", 1, 0)
    + text(b"a/step0/rank0/dump.json")
    + bytes(8)
    + struct.pack("<q", 1)
    + text(b"--tolerant")
    + bytes(8)
    + struct.pack("<q", 1)  # a copy
    + text(b"a/step0/rank0/dump.json") * 2
    + bytes(8)
    + text(b"")
    + text(b"a")
    + struct.pack("<q", 1)
    + text(b"step0/rank0/dump.json")
    + struct.pack("<2q", len(COPIED), zlib.crc32(COPIED))
    + bytes(8),
]

# Of compare --ray: the dumps of a node; its answer, which names the version in the part; the files
# of a dump.
NODE_ANSWERS = [
    b'{"path": "runs/a", "kind": 2, "dumps": [[0, 1, 7, "runs/a/step0/rank1/dump.json"]]}',
    b'{"code": 0, "said": "", "folder": "/tmp/a", "bytes": 9, "files": [["compare_part_1_of_1.bin",'
    b' 5], ["step0/compare_result_rank1_20260102030405.csv", 4]]}\nmsprobe,1,2',
    b'{"code": 0, "said": "", "bytes": 6, "files": [["0", 4], ["5", 2]], "elements": true}\n{   {}',
    b'{"code": 2, "said": "error: no dump\\nhint: -", "folder": "/a", "bytes": 0, "files": []}',
]

MERGES = (
    b"api:\n  - Distributed.all_reduce\ncompare_index:\n  - Max diff\n"
    + APART
    + b'NPU Name,Max diff,NPU max,Bench max\n"Distributed.all_reduce.0.forward.input.0",1,2,3\n'
    + APART
    + b"NPU Name,Max diff\nDistributed.all_reduce.0.forward.input.0,N/A\n",
    b"api: [a]\n"
    + APART
    + b"NPU Name,NPU MD5,Result\nx.a.0,1,Pass\n"
    + APART
    + b"NPU Name,Result,Result\nx.a.0,Nan,\n",
)
EXPRESSIONS = (
    *(b"0:2,:,3", b"...,::-1", b"-1", b"2-5", b"Module.fc.Linear.forward.0", b"a.3.debug"),
    *(b"error,MaxRelativeErr>0.01", b"cosine<99%, unmatched", b"Functional.linear.3.backward"),
)
REVISIONS = (
    b"ref: refs/heads/main\n" + APART + b"0" * 40 + b" refs/heads/main\n" + APART + b"1" * 40,
    b"2" * 64 + b"\n",
    b"gitdir: ../clone/.git\n",
)


def pickles_of(archive):
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            if name.endswith("data.pkl"):
                info = file.getinfo(name)
                info.CRC = None  # do not check it: one golden file has no checksum on purpose
                yield file.read(info)


def recorded_files(name):
    """The files of this name in the dumps of the older tools, which lie in archives."""
    archives = sorted(DATA.glob("dumps/*.tar"))
    found = (recorded(f"dumps/{archive.stem}").rglob(name) for archive in archives)
    return list(itertools.chain.from_iterable(map(sorted, found)))


def contents(*patterns):
    """Of the files of tests/data that a pattern names; "dumps/**/NAME" looks into archives."""
    found = [
        recorded_files(pattern.removeprefix("dumps/**/"))
        if pattern.startswith("dumps/**/")
        else sorted(DATA.glob(pattern))
        for pattern in patterns
    ]
    return [path.read_bytes() for path in itertools.chain.from_iterable(found)]


def archives():
    return [path for path in sorted(DATA.glob("pt/**/*.pt")) if zipfile.is_zipfile(path)]


def folders():
    """Folders of dumps: recorded by the older tools, and our own from the end-to-end cases."""
    return [
        path.parent for path in [*sorted(CASES.glob("**/dump.json")), *recorded_files("dump.json")]
    ]


def tensors():
    return contents("npy/**/*.npy", "safetensors/**/*.safetensors", "pt/**/*.pt")


def pkl_files():
    """Contents of all pkl files."""
    loose = [*DATA.glob("dialects/**/*.pkl"), *CASES.glob("**/*.pkl")]
    return [path.read_bytes() for path in [*sorted(loose), *recorded_files("*.pkl")]]


def killed():
    """Complete dumps, and dumps that a kill has cut off."""
    for folder in folders():
        names = ("dump.json", "stack.json", "construct.json")
        files = [(folder / name).read_bytes() for name in names if (folder / name).exists()]
        yield APART.join(files)
        yield APART.join(file[: len(file) // 2] for file in files)


def pairs():
    """Each dump with the next one, which usually is the other side of the same comparison."""
    dumps = [(folder / "dump.json").read_bytes() for folder in folders()]
    dumps += pkl_files()
    for one, other in itertools.pairwise(dumps):
        yield one + APART + other


def tensor(shape, largest, print_):
    """What a dump says of a tensor of random numbers."""
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": shape,
        "Max": largest,
        "Min": -1.5,
        "Mean": 0.125,
        "Norm": largest * 3,
        "requires_grad": True,
        "fp": print_,
    }


def rank_dump(rank, parts, cut):
    """A layer of which a rank has a part: hidden units, or rows of the batch."""
    rows, units = (4 // parts, 6) if cut == "batch" else (4, 6 // parts)
    hidden = tensor([rows, units], 2.5 + rank, f"hidden{rank}{cut}")
    made = tensor([rows, 5], 1.5 + rank, f"made{rank}{cut}")
    whole = tensor([4, 5], 3.5, "whole")
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "0"}
    loss = tensor([], 0.5 + rank * (cut == "batch"), f"loss{rank}{cut}")

    def call(taken, made):
        return {"input_args": taken, "input_kwargs": {}, "output": made}

    calls = {
        "Functional.gelu.0.forward": call([hidden], [hidden]),
        "Functional.linear.1.forward": call([hidden], [made]),
        "Distributed.all_reduce.0.forward": call([made, group], [whole]),
        "Functional.mse_loss.0.forward": call([whole], [loss]),
        "Functional.gelu.0.backward": {"input": [hidden], "output": [hidden]},
    }
    layout = {"groups": [{"ranks": [0, 1], "backend": "gloo", "name": "0"}]}
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    head |= {"tool": "msprobe 27.0.0", "provenance": {"parallel": layout}, "data": calls}
    return json.dumps(head).encode()


def joined_ranks():
    """A layout, weights.json, and the dumps of two ranks of two runs; see layouts_fuzz.cc."""
    weights = json.dumps({"a.weight": tensor([3, 4], 1.0, "weight")}).encode()
    for layout, (mine, other) in zip(
        itertools.cycle(LAYOUTS), [("units", "units"), ("units", "batch"), ("batch", "units")]
    ):
        ranks = [rank_dump(rank, 2, cut) for cut in (mine, other) for rank in (0, 1)]
        yield APART.join([layout, weights, *ranks])


def gradients():
    """A table, an array of booleans and an archive of the same bits; see gradients_fuzz.cc."""
    folder = recorded("gradients/target/rank0")
    table = b"param_name,max,min,norm,shape\na,1.0,-1.0,nan,[6]\n"
    booleans = (folder / "step3/b.bias.npy").read_bytes()
    for name, array in (("a", "[6]"), ("b", "[]")):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            head = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }"
            prefix = b"\x93NUMPY\x01\x00v\x00" + head.ljust(117) + b"\n"
            archive.writestr(f"{name}.npy", prefix + b"\xa4")
        yield table.replace(b"[6]", array.encode()) + APART + booleans + APART + packed.getvalue()
    yield (folder / "grad_summary_3.csv").read_bytes() + APART + APART


SIMILARITIES = (
    b"step,0,1\nfc.weight,1.0,0.5\nfc.bias,,0.97\nsummary,1.0,0.6\n",
    b"step,3\nsummary,0.1\n",
    b"step,0\n<b>,1\nsummary,\n",
)


def graphs():
    """The files of a MindSpore graph's dump: the parts that graph_folder_fuzz.cc names."""
    table = (
        b"Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,"
        b'NaN Count,MD5\nAdd,Default_Add-op0,0,0,6,output,0,4,float32,"(1,)",nan,1,ab\n'
    )
    for folder in ("train", "two"):
        rank = recorded(f"dumps/mindspore_2.10/{folder}/rank_0")
        value = min(rank.glob("net/0/*/*.npy"))
        mapping = b"1.npy," + value.name.encode() + b"\n"
        order = (rank / "execution_order/ms_execution_order_graph_0.csv").read_bytes()
        lines = (rank / "graphs/ms_output_trace_code_graph_0.ir").read_bytes()
        yield APART.join(
            (value.name.encode(), order, lines[-4000:], table, mapping, value.read_bytes())
        )


def packs():
    """Packs of two tensors; the first byte says how much of the rest is the log."""
    identity = bytes(range(16))

    def record(name, at, data, shared=None):
        dims, dtype = struct.pack("<q", len(data) // 4), b"float32"
        size = -(-(40 + len(dims) + len(dtype) + len(name)) // 64) * 64
        offset = at + size if shared is None else shared
        rest = struct.pack("<IIQQ", size, zlib.crc32(data), offset, len(data))
        rest += struct.pack("<BBHI", 1, len(dtype), len(name), 0)
        rest = (rest + dims + dtype + name).ljust(size - 8, b"\0")
        return struct.pack("<II", 0x534E4554, zlib.crc32(rest)) + rest

    def start(magic, base=0, length=0):
        head = magic + struct.pack("<II", 1, 0) + identity + struct.pack("<QQ", base, length)
        return head.ljust(64, b"\0")

    data = struct.pack("<3f", 1, 2, 3)
    first = record(b"a.pt", 64, data)
    elements = 64 + len(first)
    second = record(b"b.npy", elements + 64, data, elements)
    records = first + data.ljust(64, b"\0") + second
    index = first + second
    end = struct.pack("<QQII", 64 + len(records), 2, zlib.crc32(index), 1) + b"MSPRPEND"
    whole = start(b"MSPRPACK") + records
    yield b"\0" + whole + index + end
    yield b"\0" + whole
    log = start(b"MSPRPLOG", 64, len(records)) + records
    part = len(log) * 256 // (64 + len(log)) + 1
    yield bytes([part]) + start(b"MSPRPACK") + log


SEEDS = {
    "npy": lambda: contents("npy/**/*.npy"),
    "safetensors": lambda: contents("safetensors/**/*.safetensors"),
    "ascend_dump": lambda: contents("ascend_dump/*.1697*"),
    "pt": lambda: [path.read_bytes() for path in archives()],
    "pack": lambda: list(packs()),
    "zip": lambda: [path.read_bytes() for path in archives()],
    "pickle": lambda: [pickle for path in archives() for pickle in pickles_of(path)],
    "json": lambda: [*CONFIGS, *contents("dumps/**/*.json")],
    "dump": lambda: [
        *contents("dumps/**/debug.json"),
        *((folder / "dump.json").read_bytes() for folder in folders()),
    ],
    "pkl": lambda: [*pkl_files(), *(path.name.encode() for path in DATA.glob("dialects/*/*.npy"))],
    "side_files": lambda: [*WEIGHTS, *contents("dumps/**/stack.json", "dumps/**/construct.json")],
    "recover": lambda: list(killed()),
    "compare": lambda: list(pairs()),
    "checkpoint": lambda: [
        *INDICES,
        *contents("checkpoints/**/*.pt", "checkpoints/*/.metadata"),
        *(path.read_bytes() for path in archives()),
    ],
    "mapping": lambda: list(MAPPINGS),
    "names": lambda: [*NAMES, *MAPPINGS],
    "layouts": lambda: list(joined_ranks()),
    "compare_input": lambda: list(COMPARE_INPUTS),
    "thresholds": lambda: [
        (ROOT / "engine/compare/model/thresholds.yaml").read_bytes(),
        *THRESHOLDS,
    ],
    "accuracy": lambda: [
        (ROOT / "engine/accuracy/standards.yaml").read_bytes(),
        *contents("accuracy/*_details.csv"),
    ],
    "merge": lambda: list(MERGES),
    "parts": lambda: list(PARTS),
    "node_answer": lambda: list(NODE_ANSWERS),
    "expressions": lambda: list(EXPRESSIONS),
    "tensor_folder": lambda: tensors(),
    "graph_folder": lambda: list(graphs()),
    "reference": lambda: [
        (folder / "dump.json").read_bytes()
        for folder in folders()
        if {"checksums", "L1_md5"} & set(folder.parts)
    ],
    "show": lambda: [*tensors(), *WEIGHTS, *COVERAGES, *SHEETS, *contents("dumps/**/stack.json")],
    "config": lambda: list(CONFIGS),
    "coverage": lambda: list(COVERAGES),
    "gradients": lambda: list(gradients()),
    "similarities": lambda: list(SIMILARITIES),
    "run_log": lambda: list(RUN_LOGS),
    "git": lambda: list(REVISIONS),
    "yaml": lambda: [
        path.read_bytes()[:4000]
        for path in sorted((ROOT / "python/msprobe/pytorch/hook_module").glob("*.yaml"))
    ],
    "tables": lambda: list(TEXTS),
    "table_file": lambda: list(SHEETS),
}


def write_corpus(name, folder):
    """Writes the seeds of a target to files in a new folder."""
    folder.mkdir(parents=True)
    for index, content in enumerate(SEEDS[name]()):
        (folder / f"seed{index}").write_bytes(content)
