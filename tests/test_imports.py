"""What an import loads."""

import subprocess
import sys


def test_the_compiler_is_not_loaded_for_looking():
    """It takes as long as torch itself, and whoever opens a page or asks for help does not compile."""
    program = "import sys, bort, bort.optim, bort.app; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
