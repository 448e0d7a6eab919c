"""Makes the picture of the demo in docs/images: `make pictures`. Needs the CLI; nothing leaves the machine."""

import io
import re
from pathlib import Path

import anyio
from rich.console import Console

from toolwire.cli.demo import choose_peer, converse

ROOT = Path(__file__).parent.parent
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # rich refers to fonts of another site


def main() -> None:
    """Run the demo and save its terminal as SVG."""
    console = Console(record=True, width=84, force_terminal=True, highlight=False, file=io.StringIO())
    anyio.run(converse, console, choose_peer())
    picture = console.export_svg(title="toolwire demo", unique_id="demo")
    path = ROOT / "docs" / "images" / "demo.svg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_FONTS.sub("", picture) + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
