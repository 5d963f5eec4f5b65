"""Studies: each module asks one question of a model and has a typed answer. Knows no screen."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def _refuse_shadows(*names: str) -> None:
    """Say what shadows what when another file answers to the name of one of our packages.

    `model` is a natural name for a script of one's own, and Python looks in the working folder first. This check stands
    in each package that could meet a stranger, because none of them can rely on importing another one.
    """
    ours = Path(__file__).resolve().parents[1]
    for name in names:
        spec = find_spec(name)
        places = [*(spec.submodule_search_locations or []), spec.origin] if spec else []
        found = next((Path(place) for place in places if place), None)
        if found is not None and found.resolve() not in (ours / name, ours / name / "__init__.py"):
            sentence = (
                f"{found} shadows Cutaway's package `{name}` ({ours / name}), because Python looks there first. "
                "Rename it, or start from another folder."
            )
            if sys.argv[:1] != ["-m"]:
                raise ImportError(sentence)
            sys.stderr.write(f"{sentence}\n")
            raise SystemExit(2)


_refuse_shadows("model", "interp")
