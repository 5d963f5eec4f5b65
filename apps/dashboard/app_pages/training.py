"""Training dynamics."""

from __future__ import annotations

import streamlit as st

st.title("Training dynamics")
