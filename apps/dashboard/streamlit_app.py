"""The dashboard's entrypoint: the selection, drawn once for all pages, and the page that was asked for."""

from __future__ import annotations

import streamlit as st

from apps.dashboard import components, data, icon
from apps.dashboard.frame import drawing

PAGES = {
    "Look": [
        st.Page("app_pages/overview.py", title="Overview", icon=":material/dashboard:", default=True,
                help="The runs, how they learned, what was found at the chosen checkpoint, and what is saved."),
        st.Page("app_pages/heads.py", title="Heads", icon=":material/grid_on:",
                help="Scores of every head beside step 0, and the attention pattern of any head on your own text."),
        st.Page("app_pages/memories.py", title="FFN memories", icon=":material/key:", url_path="memories",
                help="What triggers each memory of the FFNs, and which tokens it promotes."),
        st.Page("app_pages/lens.py", title="Lens", icon=":material/search_insights:", url_path="lens",
                help="What the model would say after each sublayer, and which parts a logit is the sum of."),
    ],
    "Test": [
        st.Page("app_pages/ablate.py", title="Ablate", icon=":material/content_cut:",
                help="What the model loses without a head, a memory or a set of them, with interval and control."),
        st.Page("app_pages/findings.py", title="Findings", icon=":material/bookmark:", url_path="findings",
                help="What was pinned, with notes and links, and its export as a report."),
    ],
    "Train": [
        st.Page("app_pages/training.py", title="Training dynamics", icon=":material/timeline:", url_path="training",
                help="When heads, loss and in-context learning changed, over the checkpoints of a run."),
        st.Page("app_pages/gradients.py", title="Norms & gradients", icon=":material/show_chart:", url_path="gradients",
                help="Gradient and residual norms by layer, at initialization and over training, by norm placement."),
    ],
}  # fmt: skip

st.set_page_config(page_title="Cutaway", page_icon=icon.picture(), layout="wide")
page = st.navigation(PAGES, position="hidden")
found = data.runs()
if found:
    drawing.draw(page, PAGES, found)
else:
    components.missing(f"There is no run in {data.root()} yet.", "cutaway demo", "cutaway train tiny")
