"""Modules that several tests share lie beside them: recording.py, odd_programs.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
