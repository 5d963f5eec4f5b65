"""Placeholder while the study is being written."""

import streamlit as st

st.title("memories")
