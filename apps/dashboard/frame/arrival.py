"""Sending an address that names no run or no checkpoint on to one that names both, before the page is loaded.

The page itself would write them into the address too, but each as an entry of the browser's history, and going back to
an entry without them would write them again: nobody could go back past the dashboard.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PAGES = Path(__file__).parents[1] / "app_pages"
DEFAULT = "overview"
"""The page without a path."""


def completed(query: str) -> str | None:
    """Return `query` with the run and the checkpoint that would be shown; None where it names them, or none can be.

    Args:
        query: of an address, without the question mark.
    """
    from apps.dashboard import data  # its caches want a server, which is not there yet where this is imported

    said = parse_qs(query, errors="replace")
    if "run" in said and "step" in said:
        return None
    runs = {run.name: run for run in data.runs()}
    run = runs.get(said["run"][0]) if "run" in said else next(iter(runs.values()), None)
    if run is None:
        return None
    missing = {} if "run" in said else {"run": run.name}
    if run.steps and "step" not in said:
        missing["step"] = str(run.steps[-1])
    return "&".join(filter(None, [query, urlencode(missing)])) if missing else None


class SentOn:
    """Middleware: redirects requests for a page whose address does not say what it shows."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        names = {file.stem for file in PAGES.glob("*.py")}
        self._paths = {"/", *(f"/{name}" for name in names - {DEFAULT})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a redirect, or let the app answer."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import RedirectResponse

        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] in self._paths:
            query = await run_in_threadpool(completed, scope["query_string"].decode("latin-1"))
            if query is not None:  # a relative address: it stays on the host that was asked
                never = {"Cache-Control": "no-store"}
                await RedirectResponse(f"{scope['path']}?{query}", 307, headers=never)(scope, receive, send)
                return
        await self._app(scope, receive, send)
