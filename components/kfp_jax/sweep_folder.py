"""The files in a sweep's output folder: what it is, its trials, and what is made of them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from kfp_jax import storage
from kfp_jax.errors import OutputError, SpecError
from kfp_jax.html import render_leaderboard
from kfp_jax.sweep.importance import importances
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.summary import SweepSummary
from kfp_jax.sweep.table import read_trials, to_csv, to_json_lines
from kfp_jax.sweep.trial import Trial

STUDY = "study.json"
JOURNAL = "journal.jsonl"
SUMMARY = "sweep.json"
TRIALS = "trials.jsonl"
TRIALS_CSV = "trials.csv"
LEADERBOARD = "leaderboard.html"
