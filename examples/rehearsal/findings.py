"""What a rehearsal found: one screen, and whether anything was violated."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Findings:
    """Lines of what was counted, and what of it should not be so."""

    title: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    violated: list[str] = field(default_factory=list)

    def count(self, label: str, value: object) -> None:
        """Tell a figure."""
        self.lines.append((label, f"{value:,}" if isinstance(value, int) else str(value)))

    def must(self, holds: bool, otherwise: str) -> None:
        """What has to hold; `otherwise` says what was found instead."""
        if not holds:
            self.violated.append(otherwise)

    def show(self) -> None:
        """Print it."""
        print(self.title)
        for label, value in self.lines:
            print(f"  {label:<34} {value}")
        for one in self.violated:
            print(f"  VIOLATED: {one}")
        print("  " + ("violated" if self.violated else "holds"), flush=True)
