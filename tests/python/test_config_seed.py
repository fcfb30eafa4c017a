"""The keys seed and is_deterministic: the tool seeds only if the file sets one of them."""

import random

import pytest
import torch
from recording import run_forked


def draw(folder, text):
    """Random numbers after construction, and whether only deterministic algorithms are allowed."""
    from msprobe.pytorch import PrecisionDebugger

    (folder / "config.json").write_text(text)
    random.seed(5)
    torch.manual_seed(5)
    PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))
    numbers = random.random(), torch.rand(1).item()
    return numbers, torch.are_deterministic_algorithms_enabled()


def seeded(number):
    random.seed(number)
    generator = torch.Generator().manual_seed(number)
    return random.random(), torch.rand(1, generator=generator).item()


@pytest.mark.parametrize(
    ("text", "seed", "deterministic"),
    [
        ("{}", 5, False),
        ('{"seed": null, "is_deterministic": null}', 5, False),
        ('{"seed": 7}', 7, False),
        ('{"seed": 0, "is_deterministic": false}', 0, False),
        ('{"is_deterministic": true}', 1234, True),
        ('{"seed": 7, "is_deterministic": true}', 7, True),
    ],
)
def test_seed(text, seed, deterministic, tmp_path, capfd):
    assert run_forked(draw, tmp_path, text) == (seeded(seed), deterministic)
    said = capfd.readouterr().err
    assert said.count("as the configuration asks") == int(seed != 5)
