"""Let the tests of this folder share their text strategies."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
