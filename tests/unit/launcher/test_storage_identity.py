from pathlib import Path

import pytest
from kfp_jax import storage


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a/b", "/a/../a/b"),
        ("/a/b", "//a//b/."),
        ("/a/b", "file:///a/b/"),
        ("/a b", "file:///a%20b"),
        ("pvc://claim/a", "pvc://claim//a/"),
        ("pvc://claim", "pvc://claim/"),
        ("s3://bucket/a", "s3://bucket/a/"),
    ],
)
def test_one_folder_has_one_identity(one: str, other: str) -> None:
    assert storage.identity(one, "x") == storage.identity(other, "x")


def test_what_is_above_a_link_is_above_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "far" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "below")
    spelled = str(tmp_path / "link" / ".." / "out")
    assert storage.identity(spelled, "x") == str(tmp_path.resolve() / "far" / "out")


@pytest.mark.parametrize("other", ["/a/c", "pvc://claim/b", "pvc://other/a", "s3://bucket/b"])
def test_other_folders_have_others(other: str) -> None:
    these = {storage.identity(uri, "x") for uri in ("/a", "pvc://claim/a", "s3://bucket/a")}
    assert storage.identity(other, "x") not in these
