"""Starting the dashboard: what it refuses, and what it never does."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from streamlit import config

from apps.dashboard import launch
from apps.dashboard.charts import spec_of
from apps.dashboard.data import Run
from apps.dashboard.frame.arrival import SentOn
from model.errors import InputError


def test_it_listens_on_this_machine_only_and_tells_nobody() -> None:
    settings = launch.settings(8501)
    assert settings["server.address"] == "127.0.0.1"
    assert settings["server.allowedHosts"] == ["127.0.0.1", "localhost"]
    assert settings["browser.gatherUsageStats"] is False
    assert settings["server.fileWatcherType"] == "none"
    assert settings["server.enableAgentApi"] is False
    assert settings["server.enableStaticServing"] is False


def test_every_setting_is_one_that_streamlit_has() -> None:
    known = config.get_config_options()
    assert [name for name in launch.settings(8501) if name not in known] == []


def test_the_theme_fetches_no_font_and_covers_light_and_dark() -> None:
    text = launch.THEME.read_text("utf-8")
    assert "http" not in text
    settings = launch.settings(8501)
    for mode in ("light", "dark"):
        assert len(settings[f"theme.{mode}.chartSequentialColors"]) == 10
        assert len(settings[f"theme.{mode}.chartDivergingColors"]) == 10


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_without_runs_is_served_all_the_same(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []
    monkeypatch.setattr("streamlit.App.run", lambda *_, **__: served.append(os.environ[launch.ROOT_VARIABLE]))
    monkeypatch.setenv(launch.ROOT_VARIABLE, "")
    monkeypatch.setattr(launch, "preload", lambda: served.append("imported"))
    launch.launch(tmp_path / folder, _free_port())
    assert served == ["imported", str((tmp_path / folder).resolve())]


def test_what_pages_need_is_imported_before_the_first_and_collected_no_more() -> None:
    try:
        launch.preload()
        assert set(launch.PRELOADED) <= set(sys.modules)
        assert len(gc.get_objects()) < gc.get_freeze_count() / 10
    finally:
        gc.unfreeze()


def test_an_address_that_names_no_checkpoint_is_sent_on_to_the_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by the page, run and step would be two entries of the history that nobody can go back past."""
    monkeypatch.setattr("apps.dashboard.data.runs", lambda: (_run("a", tmp_path, (0, 24)), _run("b", tmp_path, ())))
    asked = [
        *("/", "/heads?head=L1H3&prompt=a%20b", "/heads?run=a", "/?step=0", "/?run=b", "/?run=b&step=7"),
        *("/heads?run=nothing", "/heads?run=a&step=24", "/_stcore/health", "/overview.js"),
    ]
    sent = {address: asyncio.run(_sent_on_to(address)) for address in asked}
    assert sent == {
        "/": "/?run=a&step=24",
        "/heads?head=L1H3&prompt=a%20b": "/heads?head=L1H3&prompt=a%20b&run=a&step=24",
        "/heads?run=a": "/heads?run=a&step=24",
        "/?step=0": "/?step=0&run=a",
        "/?run=b": None,
        "/?run=b&step=7": None,
        "/heads?run=nothing": None,
        "/heads?run=a&step=24": None,
        "/_stcore/health": None,
        "/overview.js": None,
    }


async def _sent_on_to(address: str) -> str | None:
    """Where a request is redirected to; None where the app answers it."""
    path, _, query = address.partition("?")
    answers: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def nothing() -> Any: ...

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    await SentOn(app)(scope, nothing, send)
    return dict(answers[0]["headers"]).get(b"location", b"").decode() or None


def _run(name: str, root: Path, steps: tuple[int, ...]) -> Run:
    return Run(name=name, path=root / name, steps=steps, model=None, settings={})


def test_a_file_in_place_of_the_folder_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    with pytest.raises(InputError, match=r"notes is a file; name the folder that holds the runs"):
        launch.launch(tmp_path / "notes")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_port_in_use_is_refused_and_another_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"port {port} cannot be used .* for example --port \d+"):
            launch.launch(tmp_path, port)


def test_a_dark_figure_has_dark_paper_and_the_same_data() -> None:
    import altair as alt
    import pandas as pd

    from analyses import figures

    rows = pd.DataFrame({"x": [1.0], "colour": [figures.INK]})
    chart = (
        alt.Chart(rows)
        .mark_text(color=figures.INK)
        .encode(x="x:Q", color=alt.Color("x:Q", scale=figures.diverging(1.0)))
    )
    light, dark = spec_of(chart, dark=False), spec_of(chart, dark=True)
    assert light["datasets"] == dark["datasets"]
    assert light["config"]["background"] == figures.PAPER != dark["config"]["background"]
    assert dark["mark"]["color"] != figures.INK
    assert not set(dark["encoding"]["color"]["scale"]["range"]) & set(figures.DIVERGING)
