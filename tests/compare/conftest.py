"""Modules that several tests share lie beside them: golden_tables.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
