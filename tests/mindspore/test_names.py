"""The names of entries, what they hold, and the files around them."""

import numpy as np
from mindspore.ops import relu as early_relu
from programs import trainer, transformer
from runs import forked, record, tensors

import mindspore
from mindspore import Tensor, mint, nn, ops

X = np.arange(6, dtype="float32").reshape(2, 3)


def forward(dump):
    return [name for name in dump.names if ".forward" in name]


@forked
def test_apis_have_the_name_they_are_called_by(tmp_path):
    x = Tensor(X)

    def run():
        mint.sin(x)
        ops.sin(x)
        mint.nn.functional.relu(x)
        early_relu(x)  # bound before the recording: it has the first name of the function
        x + x
        x[0]
        x.T.sum()
        ops.mean(x)

    _, dump = record(tmp_path, run, level="L1")
    assert forward(dump) == [
        "Mint.sin.0.forward",
        "Functional.sin.0.forward",
        "MintFunctional.relu.0.forward",
        "Functional.relu.0.forward",
        "Tensor.__add__.0.forward",
        "Tensor.permute.0.forward",
        "Tensor.sum.0.forward",
        "Functional.mean.0.forward",
    ]
    assert dump.header["framework"] == "mindspore"


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(3, 4)
        self.act = nn.ReLU()
        self.blocks = nn.CellList([nn.Dense(4, 4), nn.Dense(4, 2)])

    def construct(self, x):
        x = self.act(self.fc1(x))
        for block in self.blocks:
            x = block(x)
        return x


def step(net, x):
    return trainer(net, lambda: net(x).sum())[0]


@forked
def test_cells(tmp_path):
    net = Net()
    _, dump = record(tmp_path, step(net, Tensor(X)), net, level="L0")
    assert dump.names == [
        "Cell.fc1.Dense.forward.0",
        "Cell.act.ReLU.forward.0",
        "Cell.blocks.0.Dense.forward.0",
        "Cell.blocks.1.Dense.forward.0",
        "Cell.blocks.1.Dense.backward.0",
        "Cell.blocks.1.Dense.parameters_grad.0",
        "Cell.blocks.0.Dense.backward.0",
        "Cell.blocks.0.Dense.parameters_grad.0",
        "Cell.act.ReLU.backward.0",
        "Cell.fc1.Dense.backward.0",
        "Cell.fc1.Dense.parameters_grad.0",
    ]
    entry = dump.data["Cell.fc1.Dense.forward.0"]
    assert set(entry) >= {"input_args", "input_kwargs", "output", "parameters"}
    assert list(entry["parameters"]) == ["weight", "bias"]
    value = entry["input_args"][0]
    assert (value["type"], value["dtype"], value["shape"]) == (
        "mindspore.Tensor",
        "Float32",
        [2, 3],
    )
    assert "requires_grad" not in value
    assert set(dump.parents.values()) == {None}
    assert dump.coverage["modules"]["recorded"] == 4


@forked
def test_primitives_have_the_name_of_their_attribute(tmp_path):
    net = Net()
    _, dump = record(tmp_path, step(net, Tensor(X)), net, level="mix")
    assert "Primitive.matmul.MatMul.2.forward" in dump.names
    assert "Primitive.bias_add.BiasAdd.1.backward" in dump.names
    assert dump.parents["Primitive.relu.ReLU.0.forward"] == "Cell.act.ReLU.forward.0"
    assert dump.parents["Primitive.relu.ReLU.0.backward"] == "Cell.act.ReLU.backward.0"


@forked
def test_primitives_at_level_l1(tmp_path):
    net = Net()
    _, dump = record(tmp_path, step(net, Tensor(X)), net, level="L1")
    assert "Primitive.matmul.MatMul.0.forward" in dump.names
    assert not [name for name in dump.names if name.startswith("Cell")]
    assert dump.data["Primitive.relu.ReLU.0.forward"]["module"] == "Cell.act.ReLU"


@forked
def test_a_list_of_cells(tmp_path):
    net = Net()
    _, dump = record(tmp_path, step(net, Tensor(X)), [nn.ReLU(), net], level="L0")
    assert dump.names[0] == "Cell.1.fc1.Dense.forward.0"


@forked
def test_stacks_show_the_program(tmp_path):
    net = Net()
    _, dump = record(tmp_path, step(net, Tensor(X)), net, level="mix")
    names, frames = next(
        each for each in dump.stacks.values() if "Cell.fc1.Dense.forward.0" in each[0]
    )
    assert "x = self.act(self.fc1(x))" in frames[0] and "Cell.act.ReLU.forward.0" in names
    assert "cell.py" not in "".join(frames)


@forked
def test_values_that_are_no_tensors(tmp_path):
    _, dump = record(tmp_path, lambda: ops.cast(Tensor(X), mindspore.int32), level="L1")
    entry = dump.data["Functional.cast.0.forward"]
    assert entry["input_args"][1] == {"type": "mindspore.dtype", "value": "Int32"}


@forked
def test_structure(tmp_path):
    net, loss = transformer(1)
    _, dump = record(tmp_path, trainer(net, loss)[0], net, level="mix", task="structure")
    assert dump.data == {}
    assert dump.parents["Cell.block.fc1.Dense.forward.0"] == "Cell.block._Block.forward.0"


@forked
def test_tensor_files(tmp_path):
    net, loss = transformer(1)
    _, dump = record(tmp_path, trainer(net, loss)[0], net, level="mix", task="tensor")
    assert {value["data_name"].rsplit(".", 1)[1] for value in tensors(dump.data)} == {"npy"}
    weight = dump.data["Cell.head.Dense.parameters_grad.0"]["weight"][0]
    assert weight["data_name"] == "Cell.head.Dense.parameters_grad.0.weight.npy"
