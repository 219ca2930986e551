"""The small programs behind `make docs-check` and `make constraints`."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def load(name: str) -> ModuleType:
    module_spec = importlib.util.spec_from_file_location(f"tools_{name}", TOOLS / f"{name}.py")
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    module_spec.loader.exec_module(module)
    return module


docs = load("docs")
pin = load("pin")

PAGE = """\
Some text.

```bash
make demo
ls build
```

```console
$ not run
```

```
```

- an item
  ```bash
  make help
  ```
"""


def test_only_bash_blocks_are_commands() -> None:
    blocks = list(docs.bash_blocks("page.md", PAGE))
    assert blocks == [
        docs.Block("page.md", 3, ("make demo", "ls build")),
        docs.Block("page.md", 16, ("  make help",)),
    ]


def test_a_block_that_is_never_closed_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"page\.md:2: .* never closed"):
        list(docs.bash_blocks("page.md", "text\n```bash\nmake demo\n"))


def test_only_a_literal_line_counts_as_already_run() -> None:
    block = docs.Block("page.md", 1, ("make demo", "  make help", "make demo --again"))
    assert block.without({"make demo", "make help"}).commands == ("make demo --again",)


@pytest.mark.parametrize(
    ("commands", "exit_code"),
    [
        pytest.param(("true", "false | true", "true"), 1, id="a-failing-pipe"),
        pytest.param(("echo $no_such_variable",), 1, id="an-unset-variable"),
        pytest.param(("exit 3",), 3, id="own-exit-code"),
        pytest.param(("cd /", "test $PWD = /"), 0, id="one-script"),
    ],
)
def test_a_block_ends_at_its_first_failing_command(
    commands: tuple[str, ...], exit_code: int
) -> None:
    assert docs.run(docs.Block("page.md", 1, commands)) == exit_code


def test_pins_name_every_package_but_our_own() -> None:
    names = {"kfp-jax": "0.1.0", "jax": "0.10.2", "Jinja2": "3.1.6"}
    report = {
        "install": [{"metadata": {"name": n, "version": v}} for n, v in names.items()],
    }
    assert pin.pins(report) == ["jax==0.10.2", "Jinja2==3.1.6"]
