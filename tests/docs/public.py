"""docs/_public.py, which the site's reference reads the public names from."""

import importlib
import sys

from tests.docs.pages import ROOT

sys.path.append(str(ROOT / "docs"))
try:
    public = importlib.import_module("_public")
finally:
    sys.path.remove(str(ROOT / "docs"))
