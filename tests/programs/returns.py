"""Programs that end in different ways, without JAX: they start in a blink."""

from kfp_jax_runtime import Run


def not_finite(run: Run) -> dict[str, float]:
    return {"accuracy": 0.9, "bad": float("nan"), "worse": float("inf"), "good": 2.0}


def nothing(run: Run) -> None:
    print("def train(): ...")


def other_name(run: Run) -> dict[str, float]:
    return {"val_accuracy": 0.5}


def model(run: Run) -> dict[str, float]:
    for number in range(300):
        folder = run.output_dir / "model" / f"nested-{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}").write_text(str(number))
    return {"accuracy": 0.25}


def echo(run: Run) -> dict[str, float]:
    print("parameters:", run.parameters)
    return {"accuracy": 0.0}
