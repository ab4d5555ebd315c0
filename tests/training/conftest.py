"""Lets the tests of this folder, and the scripts they start, share `tiny_training`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
