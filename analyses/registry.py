"""The studies that exist, and what a study module must offer.

A study module has, in this order: `QUESTION` (one sentence), `Config` (frozen, with a seed), `Result` (frozen,
tensors on the CPU), `run(subject, config, *, progress=None) -> Result` (pure), `table(result)`, `figure(result)` and
`findings(result)`. Modules are imported when they are asked for, so that listing the studies costs nothing. A study
that can do without a run says `NEEDS_RUN = False`, and its `run` also takes `device`. A study that reads files beside
the checkpoint's own weights (logs, a twin, step 0) also has `inputs(subject, config) -> list[Path]`: a saved result
is used again only while they are unchanged. One that streams a corpus has a `run` that also takes `keeper`, so that
processes can share it and a kill does not lose it (`analyses.streamed`). A study of more than one kind of row has
`more_tables(result)`, by name, and one with examples in text has `passages(result)`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from model.errors import InputError, UnknownNameError, closest

if TYPE_CHECKING:
    import pandas as pd

    from analyses.kept_states import Keeper

Progress = Callable[[int, int, str], None]
"""Called as progress(done, total, what); may raise to stop the work."""

STUDIES = MappingProxyType(
    {
        "attention-patterns": "analyses.attention_patterns",
        "head-ablation": "analyses.head_ablation",
        "head-circuits": "analyses.head_circuits",
        "head-importance": "analyses.head_importance",
        "self-repair": "analyses.self_repair",
        "ffn-memories": "analyses.ffn_memories",
        "ffn-composition": "analyses.ffn_composition",
        "memory-promotion": "analyses.memory_promotion",
        "gradient-flow": "analyses.gradient_flow",
        "probes": "analyses.probes",
        "training-dynamics": "analyses.training_dynamics",
    }
)
"""Names on the command line, and the module of each."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a result says, as a sentence that stands alone."""

    sentence: str
    """Names n, seed, step, the interval and the control; where the effect is absent it says so."""

    found: bool | None
    """Whether it affirms the effect (True) or denies it (False).

    None where that cannot be told: nothing was measured that could say it, or what was measured leaves it open.
    """

    of_run: bool = True
    """Whether it is about the run; False for laws of models drawn for the study, which hold whatever the run is."""

    lines: tuple[str, ...] = ()
    """The sentence in parts, for a terminal, where it is long."""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A stretch of text with something told of each token, as a page shows it by shading."""

    group: str
    """What it is an example of; passages of one group stand together."""
    what: str
    """Which example it is, in a few words."""
    tokens: tuple[str, ...]
    """Printable strings."""
    shades: tuple[float, ...]
    """What is told of each token, from 0 to 1."""
    after: str | None
    """The token that follows, which was not read."""


@dataclass(frozen=True)
class Study:
    """A study by name; its module is imported on first use."""

    name: str
    module: ModuleType

    @property
    def question(self) -> str:
        """The one sentence the study answers."""
        return self.module.QUESTION

    @property
    def config_class(self) -> type[Any]:
        """The frozen dataclass of what can be varied."""
        return self.module.Config

    @property
    def result_class(self) -> type[Any]:
        """The frozen dataclass of what is found."""
        return self.module.Result

    @property
    def needs_run(self) -> bool:
        """Whether there is nothing to study without a checkpoint; a study of initialization says NEEDS_RUN = False."""
        return getattr(self.module, "NEEDS_RUN", True)

    @property
    def is_shared(self) -> bool:
        """Whether several processes can share one run of it: its `run` takes a `keeper` (`analyses.streamed`)."""
        return "keeper" in inspect.signature(self.module.run).parameters

    def run(
        self,
        subject: Any,
        config: Any,
        *,
        progress: Progress | None = None,
        device: str = "cpu",
        keeper: Keeper | None = None,
    ) -> Any:
        """The result for `subject`, a `Lab` or None.

        `device` is for models that the study makes itself, `keeper` for studies that share and save a long pass.
        """
        if not self.needs_run:
            return self.module.run(subject, config, progress=progress, device=device)
        if subject is None:
            raise InputError(f"{self.name} studies a trained model; name one, for example runs/demo or runs/demo@512.")
        shared = {"keeper": keeper} if self.is_shared else {}
        return self.module.run(subject, config, progress=progress, **shared)

    def inputs(self, subject: Any, config: Any) -> Sequence[Path]:
        """The files beside the checkpoint that the study reads."""
        named = getattr(self.module, "inputs", None)
        return () if named is None else tuple(named(subject, config))

    def table(self, result: Any) -> pd.DataFrame:
        """The result as rows."""
        return self.module.table(result)

    def more_tables(self, result: Any) -> Mapping[str, pd.DataFrame]:
        """Other tables by name, of a study that has `more_tables(result)`: saved beside the first one."""
        named = getattr(self.module, "more_tables", None)
        return {} if named is None else named(result)

    def passages(self, result: Any) -> Sequence[Passage]:
        """Text to be shown beside the figure, of a study that has `passages(result)`."""
        shown = getattr(self.module, "passages", None)
        return () if shown is None else tuple(shown(result))

    def figure(self, result: Any) -> Any:
        """The result as an Altair chart; needs no model."""
        return self.module.figure(result)

    def findings(self, result: Any) -> Sequence[Finding]:
        """The result in sentences."""
        return tuple(self.module.findings(result))


def get_study(name: str) -> Study:
    """The study called `name` on the command line; underscores are as good as hyphens."""
    canonical = name.replace("_", "-")
    if canonical not in STUDIES:
        near = closest(canonical, STUDIES)
        raise UnknownNameError(f'There is no study "{name}".{near} Studies: {", ".join(STUDIES)}.')
    return Study(canonical, importlib.import_module(STUDIES[canonical]))
