"""save, save_grad and step write single tensors."""

import numpy as np
import pytest
from runs import bits, forked

import mindspore
from mindspore import Tensor, nn, ops
from msprobe import UsageError
from msprobe.mindspore import save, save_grad, step

X = np.arange(6, dtype="float32").reshape(2, 3)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.npy"))


@forked
def test_tensors_by_name_and_step(tmp_path):
    save(str(tmp_path), "x", Tensor(X))
    save(tmp_path, "more", {"a": [Tensor(X), Tensor(3, mindspore.int32)], "b": (Tensor(X[:0]),)})
    step()
    save(str(tmp_path), "x", Tensor(X).astype(mindspore.bfloat16).T)
    assert files(tmp_path) == [
        "step0/rank0/more.a.0_float32_1.npy",
        "step0/rank0/more.a.1_int32_2.npy",
        "step0/rank0/more.b.0_float32_3.npy",
        "step0/rank0/x_float32_0.npy",
        "step1/rank0/x_bfloat16_4.npy",
    ]
    assert np.array_equal(np.load(tmp_path / "step0/rank0/x_float32_0.npy"), X)
    assert np.array_equal(np.load(tmp_path / "step1/rank0/x_bfloat16_4.npy"), X.T)


@forked
def test_gradients_and_nothing_is_changed(tmp_path):
    mindspore.set_seed(1)
    dense, x = nn.Dense(3, 2), Tensor(X)

    def loss(saved):
        y = dense(x)
        if saved:
            y = save_grad(str(tmp_path), "y", y)
            weight = save_grad(str(tmp_path), "w", dense.weight)
            assert weight is dense.weight
        return ops.mul(y, y).sum()

    train = mindspore.value_and_grad(loss, None, dense.trainable_params())
    plain = train(False)
    saved = train(True)
    step()
    assert bits(*plain) == bits(*saved)
    assert bits(*plain) == bits(*train(False))
    names = files(tmp_path)
    assert len(names) == 2 and names[0].startswith("step0/rank0/w_grad_float32_")
    assert np.array_equal(np.load(tmp_path / names[0]), plain[1][0].asnumpy())
    assert np.array_equal(np.load(tmp_path / names[1]), 2 * dense(x).asnumpy())


@forked
def test_mistakes(tmp_path):
    for arguments in ((str(tmp_path), "x", "text"), (3, "x", Tensor(X)), (str(tmp_path), "a/b", 1)):
        with pytest.raises(UsageError, match="expected"):
            save(*arguments)
    with pytest.raises(UsageError, match="found list"):
        save_grad(str(tmp_path), "x", [Tensor(X)])
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    with pytest.raises(UsageError, match="PyNative"):
        save(str(tmp_path), "x", Tensor(X))
    assert files(tmp_path) == []


@forked
def test_a_folder_that_cannot_be_written(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    for _ in range(2):
        save(str(tmp_path / "file"), "x", Tensor(X))
    assert capfd.readouterr().err.count("Not a directory; the run goes on") == 1
