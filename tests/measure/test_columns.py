"""The tables of an audit, to the letter, and the one definition of their columns."""

import dataclasses
import math
from pathlib import Path

from bort import measure

TALL = measure.LayerAudit(
    name="conv1.weight",
    kind="conv",
    shape=(8, 4),
    blocks=2,
    invertible=True,
    sigma=(0.999, 1.0),
    row_norms=(0.5, 0.75),
    gram_diagonal=0.9995,
    gram_off_diagonal=0.00012,
    residual=0.0014,
    floor=0.0,
    ratio=0.004,
    cosine=0.25,
    claim=0.125,
    agreement=math.nan,
)
WIDE = measure.LayerAudit(
    name="head.weight",
    kind="linear",
    shape=(10, 1024),
    blocks=1,
    invertible=False,
    sigma=(0.5, 2.25),
    row_norms=(1.0, 12.5),
    gram_diagonal=1.25,
    gram_off_diagonal=0.5,
    residual=10.5,
    floor=0.96,
    ratio=None,
    cosine=None,
    claim=None,
    agreement=None,
)

AUDIT = measure.Audit((TALL, WIDE))

TEXT = """\
layer         matrix    invertible  σ            ‖row‖         Gram diag  off-diag  residual  ratio  floor  cosine  claim  agreement
────────────  ────────  ──────────  ───────────  ────────────  ─────────  ────────  ────────  ─────  ─────  ──────  ─────  ─────────
conv1.weight  2 of 8×4  yes         1.00 … 1.00  0.50 … 0.75       1.000    0.0001     0.001   0.00      –    0.25   0.12          –
head.weight   10×1024   no, wide    0.50 … 2.25  1.00 … 12.50      1.250    0.5000    10.500      –   0.96       –      –          –
"""  # noqa: E501

MARKDOWN = """\
| layer | matrix | invertible | σ | ‖row‖ | Gram diag | off-diag | residual | ratio | floor | cosine | claim | agreement |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| conv1.weight | 2 of 8×4 | yes | 1.00 … 1.00 | 0.50 … 0.75 | 1.000 | 0.0001 | 0.001 | 0.00 | – | 0.25 | 0.12 | – |
| head.weight | 10×1024 | no, wide | 0.50 … 2.25 | 1.00 … 12.50 | 1.250 | 0.5000 | 10.500 | – | 0.96 | – | – | – |
"""

COMPARED = """\
layer         matrix    invertible  σ SGD        σ Bort-S     residual SGD  residual Bort-S  ratio SGD  ratio Bort-S
────────────  ────────  ──────────  ───────────  ───────────  ────────────  ───────────────  ─────────  ────────────
conv1.weight  2 of 8×4  yes         1.00 … 1.00  1.00 … 1.00         0.001            0.001       0.00          0.50
head.weight   10×1024   no, wide    0.50 … 2.25  0.50 … 2.25        10.500           10.500          –             –
"""


def test_tables_to_the_letter():
    assert f"{AUDIT}\n" == TEXT
    assert AUDIT.markdown() == MARKDOWN
    other = measure.Audit((WIDE, dataclasses.replace(TALL, ratio=0.5)))
    assert measure.compare({"SGD": AUDIT, "Bort-S": other}) + "\n" == COMPARED


def test_every_column_shows_a_field():
    fields = {field.name for field in dataclasses.fields(measure.LayerAudit)}
    keys = [column.key for column in measure.COLUMNS]
    assert set(keys) == fields - {"kind", "blocks"}, "the kind is not shown, the blocks are in the matrix's column"
    assert len(set(keys)) == len(keys)


def test_the_documentation_explains_every_column():
    page = (Path(__file__).parents[2] / "docs" / "read-an-audit.md").read_text()
    for column in measure.COLUMNS:
        assert f"| {column.title} | {column.meaning} |\n" in page
