"""Starting the dashboard: what it refuses, and what it never does."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from streamlit import config

from apps.dashboard import launch
from apps.dashboard.charts import spec_of
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
    launch.launch(tmp_path / folder, _free_port())
    assert served == [str((tmp_path / folder).resolve())]


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
