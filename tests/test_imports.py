"""What an import loads."""

import subprocess
import sys

from tests.docs.public import public


def test_the_compiler_is_not_loaded_for_looking():
    """It takes as long as torch itself, and whoever opens a page or asks for help does not compile."""
    program = "import sys, bort, bort.optim, bort.app; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_import_bort_is_enough_for_every_public_package():
    program = f"import bort; [getattr(bort, name) for name in {public.PACKAGES!r}]"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
