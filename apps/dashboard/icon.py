"""The page's icon, made here: a named icon would be fetched from a server elsewhere."""

from __future__ import annotations

import numpy as np
from PIL import Image

PAPER, FAINT, STRONG = (246, 247, 251), (166, 193, 222), (11, 46, 87)
CELLS, PIXELS = 4, 16


def picture() -> Image.Image:
    """Return a small causal pattern with a strong diagonal."""
    cells = np.full((CELLS, CELLS, 3), PAPER, dtype=np.uint8)
    cells[np.tril_indices(CELLS)] = FAINT
    cells[np.arange(CELLS), np.arange(CELLS)] = STRONG
    return Image.fromarray(cells.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1))
