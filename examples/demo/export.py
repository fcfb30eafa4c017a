"""Writes the data and the first weights of train.py into a file, for train_mindspore.py.

python export.py FILE.npz
"""

import sys

import numpy as np
import torch
from sklearn.datasets import load_digits
from train import Reader

torch.manual_seed(0)  # as train.py
weights = {name: weight.detach().numpy() for name, weight in Reader(False).named_parameters()}
digits = load_digits()
np.savez(sys.argv[1], pictures=np.float32(digits.images) / 16, labels=digits.target, **weights)
