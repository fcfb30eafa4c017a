"""engine/formats against other programs: torch, NumPy, Python's csv module.

Runs ``formats_tool`` (tests/formats), which is built with the C++ tests.
"""

import csv
import io
import pathlib
import subprocess
import xml.etree.ElementTree as ElementTree
import zipfile
import zlib

import numpy as np
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
PT = ROOT / "tests" / "data" / "pt"
NPY = ROOT / "tests" / "data" / "npy"
SINGLE = sorted(
    line.split("\t")[0]
    for line in (PT / "expected.txt").read_text().splitlines()
    if line.split("\t")[0].endswith(".pt") and line.split("\t")[1] == ""
)


@pytest.fixture(scope="session")
def tool(build_dir):
    program = build_dir / "tests" / "formats" / "formats_tool"
    if not program.exists():
        pytest.fail(f"{program} is not built; type: make build", pytrace=False)

    def run(*words, stdin=b""):
        done = subprocess.run([program, *map(str, words)], input=stdin, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return run


def raw(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def load_any(path):
    # Some of our own golden files have globals that weights_only refuses.
    return torch.load(path, weights_only=False)


@pytest.mark.parametrize("name", SINGLE)
def test_torch_reads_what_we_write(tool, tmp_path, name):
    original = load_any(PT / name)
    is_parameter = isinstance(original, torch.nn.Parameter)
    flags = ["requires_grad"] * original.requires_grad + ["parameter"] * is_parameter
    tool("convert", PT / name, tmp_path / "copy.pt", *flags)
    for mmap in (False, True):
        copy = torch.load(tmp_path / "copy.pt", weights_only=True, mmap=mmap)
        assert copy.dtype == original.dtype
        assert copy.shape == original.shape
        assert copy.is_contiguous()
        assert copy.requires_grad == original.requires_grad
        assert isinstance(copy, torch.nn.Parameter) == is_parameter
        assert raw(copy) == raw(original)
        assert copy.untyped_storage().nbytes() == len(raw(original)), (
            "only the viewed elements are written"
        )


def test_we_read_what_torch_writes_now(tool, tmp_path):
    """The golden files are from another version of torch; this test uses the installed one."""
    torch.manual_seed(11)
    value = {
        "a": torch.randn(3, 4).t(),
        "b": [torch.arange(5, dtype=torch.int16), torch.nn.Parameter(torch.randn(2, 2).bfloat16())],
        "c": torch.randn(2, dtype=torch.complex128).conj(),
    }
    torch.save(value, tmp_path / "now.pt")
    found = [line.split("\t") for line in tool("list", tmp_path / "now.pt").splitlines()]
    tensors = {
        "['a']": value["a"],
        "['b'][0]": value["b"][0],
        "['b'][1]": value["b"][1],
        "['c']": value["c"],
    }
    assert [line[0] for line in found] == list(tensors)
    for (_, dtype, shape, flags, crc), tensor in zip(found, tensors.values(), strict=True):
        assert f"torch.{dtype}" == str(tensor.dtype)
        assert shape == str(list(tensor.shape))
        assert flags == f"{int(tensor.requires_grad)} {int(isinstance(tensor, torch.nn.Parameter))}"
        assert crc == f"{zlib.crc32(raw(tensor)):08x}"


@pytest.mark.parametrize("path", sorted(NPY.glob("*.npy")), ids=lambda path: path.stem)
def test_numpy_reads_what_we_write(tool, tmp_path, path):
    tool("convert", path, tmp_path / "copy.npy")
    original, copy = np.load(path), np.load(tmp_path / "copy.npy", allow_pickle=False)
    assert copy.dtype == original.dtype.newbyteorder("=")
    assert copy.shape == original.shape
    assert copy.tobytes() == np.ascontiguousarray(original.astype(copy.dtype)).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "complex64", "uint16"])
def test_npy_to_pt_and_back(tool, tmp_path, dtype):
    array = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    tool("convert", tmp_path / "a.npy", tmp_path / "a.pt")
    assert raw(torch.load(tmp_path / "a.pt", weights_only=True)) == array.tobytes()
    tool("convert", tmp_path / "a.pt", tmp_path / "b.npy")
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


CELLS = [
    "plain",
    "",
    "a,b",
    'say "hi"',
    "two\nlines",
    "caf\u00e9",
    " spaces ",
    "[2, 3]",
    "'",
    '"',
    '""',
    ",",
    "\n",
    "a;b",
    "0",
]


def table_bytes(rows):
    return b"".join(
        "\x1f".join(kind + text for kind, text in row).encode() + b"\x1f\x1e" for row in rows
    )


def test_csv_is_spelled_as_pythons(tool, tmp_path):
    rows = [[("t", first), ("t", second)] for first in CELLS for second in CELLS]
    rows += [[("t", cell)] for cell in CELLS]
    rows += [[("n", "-0.5"), ("n", " inf"), ("n", "nan")]]
    tool("csv", tmp_path / "t.csv", stdin=table_bytes(rows))
    expected = io.StringIO()
    csv.writer(expected, lineterminator="\n").writerows([[text for _, text in row] for row in rows])
    assert (tmp_path / "t.csv").read_bytes() == expected.getvalue().encode()


def test_csv_guards_names_and_reads_back(tool, tmp_path):
    names = [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        '=HYPERLINK("http://x","y")',
        "\uff1d1+1",
        "\uff0b1",
        "\uff0d1",
        "\uff20SUM(A1)",
    ]
    tool(
        "csv", tmp_path / "t.csv", stdin=table_bytes([[("t", name), ("n", "-1")] for name in names])
    )
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["'" + name, "-1"] for name in names]


def test_xlsx_holds_text_as_text(tool, tmp_path):
    texts = [
        "=1+1",
        "http://example.com",
        "0012",
        "a<b&c",
        "caf\u00e9",
        " leading",
        "-1",
        "{=A1}",
        "x" * 40000,
    ]
    colors = ["red", "yellow", ""] * 3
    rows = [[("t", "color"), ("t", "text"), ("t", "number")]]
    rows += [[("t", colors[i]), ("t", text), ("n", str(i))] for i, text in enumerate(texts)]
    tool("xlsx", tmp_path / "t.xlsx", stdin=table_bytes(rows))
    with zipfile.ZipFile(tmp_path / "t.xlsx") as book:
        assert book.testzip() is None
        sheet = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))
    ns = {"": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
    cells = {cell.get("r"): cell for cell in sheet.iterfind(".//c", ns)}
    assert not sheet.findall(".//f", ns) and not sheet.findall(".//hyperlink", ns)
    for i, text in enumerate(texts):
        cell = cells[f"B{i + 2}"]
        assert cell.get("t") == "inlineStr"
        assert cell.findtext("is/t", None, ns) == (
            text if len(text) <= 32767 else text[: 32767 - 6] + " [cut]"
        )
        assert float(cells[f"C{i + 2}"].findtext("v", None, ns)) == i
    styles = [cells[f"B{row}"].get("s") for row in (2, 3, 4)]
    assert styles[0] and styles[1] and styles[0] != styles[1] and styles[2] is None
