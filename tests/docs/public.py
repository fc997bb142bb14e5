"""Programs of docs/: `public` knows the public names, for the reference of the site; `pictures` makes the pictures."""

import importlib
import sys

from tests.docs.pages import ROOT

sys.path.append(str(ROOT / "docs"))
try:
    public, pictures = (importlib.import_module(name) for name in ("_public", "_pictures"))
finally:
    sys.path.remove(str(ROOT / "docs"))
