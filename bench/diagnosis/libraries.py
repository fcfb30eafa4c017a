"""Programs of sets that need more than PyTorch: libraries of `make test-real`, in .cache/real.

They stand after our own environment in the search path, and only where such a program is used.
"""

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "real"
PROGRAMS = (
    *("dpo", "t5lora", "vit", "latent", "links", "retriever", "llama", "convnext", "wav2vec"),
    *("unet2d", "electra", "effnet", "whisper", "sam", "tgn", "forecast", "mae", "gps"),
    *("vlm", "aekl", "squad", "captions", "endings", "control", "grpo", "teacher"),
    *("headlines", "subject", "chat", "tiles", "intents", "walker", "dino", "traffic"),
    *("fewsteps", "music", "passages", "thumbs", "forms", "cloth", "reviews", "vocoder"),
    *("mutants", "receipts"),
)
_declared = []


def _packages() -> Path:
    return FOLDER / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def missing(programs) -> list[str]:
    """Those of these programs that cannot run here."""
    here = (_packages() / "transformers").exists() and (FOLDER / "timm").exists()
    return [] if here else [name for name in PROGRAMS if name in programs]


def add():
    if str(_packages()) not in sys.path:
        sys.path.append(str(_packages()))


def add_timm():
    """timm imports torchvision, whose compiled operators do not fit every PyTorch: declared here.

    Both stand in a folder of their own, because other libraries import torchvision where it is.
    """
    add()
    if not _declared:
        import torch

        sys.path.append(str(FOLDER / "timm"))
        _declared.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            _declared[0].define(schema)


def load(program):
    """Imports what a program needs once, before its processes are forked."""
    if program in PROGRAMS:
        add()
        importlib.import_module(f"models.{program}")
