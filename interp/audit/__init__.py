"""Whether the hooks of a model tell the truth: every identity, measured on the user's own weights.

    report = audit(gpt)
    report.passed, report.summary

Each check recomputes in fp64, from raw weights, the config and what was read at other places, what a place should hold,
and compares. So a hook that shows something else than the model computes, a cache that shifts a position, or a matrix
that lost its tie is found on the checkpoint at hand. docs/audit.md says what each check means and where its tolerance
comes from.
"""

from interp.audit.measure import audit
from interp.audit.record import Audit, Check
from interp.audit.run_files import audit_run

__all__ = ["Audit", "Check", "audit", "audit_run"]
