from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kfp_jax.errors import SpecError
from kfp_jax.manifests.merge import strategic_merge

NODE = {"name": "node", "image": "a"}


@pytest.mark.parametrize(
    ("base", "patch", "merged"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}, id="mappings"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null-removes"),
        pytest.param({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}, id="value-by-mapping"),
        pytest.param(
            {"containers": [NODE]},
            {"containers": [{"name": "node", "image": "b"}, {"name": "side"}]},
            {"containers": [{"name": "node", "image": "b"}, {"name": "side"}]},
            id="named-items-merge-and-new-ones-follow",
        ),
        pytest.param(
            {"containers": [NODE, {"name": "side"}]},
            {"containers": [{"name": "side", "$patch": "delete"}]},
            {"containers": [NODE]},
            id="a-named-item-is-deleted",
        ),
        pytest.param(
            {"volumeMounts": [{"mountPath": "/a", "name": "x"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "y"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "y"}]},
            id="mounts-go-by-their-path",
        ),
        pytest.param(
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "b"}]},
            id="tolerations-are-replaced",
        ),
        pytest.param({"command": ["a"]}, {"command": ["b"]}, {"command": ["b"]}, id="plain-lists"),
        pytest.param(
            {"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}, id="replace"
        ),
    ],
)
def test_a_patch_is_merged_as_kubernetes_would(
    base: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]
) -> None:
    before = repr(base)
    assert strategic_merge(base, patch) == merged
    assert repr(base) == before


@pytest.mark.parametrize(
    ("patch", "named"),
    [
        pytest.param({"env": [{"value": "x"}]}, "without name in env", id="unnamed-item"),
        pytest.param({"a": {"$patch": "swap"}}, "'swap'", id="unknown-directive"),
    ],
)
def test_a_patch_that_means_nothing_is_refused(patch: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        strategic_merge({}, patch)


JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text("ab", min_size=1, max_size=3), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text("ab", min_size=1, max_size=3), JSON, max_size=3)


@given(OBJECTS, OBJECTS)
def test_merging_twice_is_merging_once(base: dict[str, Any], patch: dict[str, Any]) -> None:
    once = strategic_merge(base, patch)
    assert strategic_merge(once, patch) == once
    assert strategic_merge(base, {}) == base
