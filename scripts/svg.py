"""The few SVG elements that the figures of the documentation are made of."""

from collections.abc import Iterable
from html import escape

COLOURS = {"prioritized": "#b8860b", "adaptive": "#b03a2e", "predictive": "#1a6fb0"}
SYMBOLS = {"prioritized": "square", "adaptive": "triangle", "predictive": "circle"}
LABELS = {"prioritized": "Prioritized", "adaptive": "AES as published (Adaptive)", "predictive": "Predictive"}
INK, FAINT = "#222222", "#cccccc"


def page(width: int, height: int, title: str, elements: Iterable[str]) -> str:
    """A figure on a white ground, so that it is readable on a dark page too."""
    body = "\n".join(elements)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="13">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def text(x: float, y: float, content: str, anchor: str = "start", colour: str = INK, style: str = "") -> str:
    """One line of text; `style` holds further attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" {style}>{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = FAINT, width: float = 1) -> str:
    """A straight line."""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}" '
        'stroke-linecap="round"/>'
    )


def bar(x: float, middle: float, end: float, thickness: float, colour: str) -> str:
    """A horizontal bar from `x` to `end`."""
    top, width = middle - thickness / 2, end - x
    return f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{thickness:.1f}" fill="{colour}"/>'


def path(points: Iterable[tuple[float, float]], colour: str, width: float = 2, dashes: str = "none") -> str:
    """A line through points."""
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}" '
        'stroke-linejoin="round"/>'
    )


def dot(x: float, y: float, colour: str, radius: float = 4) -> str:
    """A filled circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"/>'


def mark(x: float, y: float, sampler: str) -> str:
    """A sampler's symbol: its shape tells it apart without colour."""
    colour, size = COLOURS[sampler], 5
    if SYMBOLS[sampler] == "circle":
        return dot(x, y, colour, size)
    if SYMBOLS[sampler] == "square":
        return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{colour}"/>'
    corners = f"{x:.1f},{y - 6:.1f} {x - 6:.1f},{y + 5:.1f} {x + 6:.1f},{y + 5:.1f}"
    return f'<polygon points="{corners}" fill="{colour}"/>'


def legend(x: float, y: float, widths: Iterable[float] = (110, 215, 100)) -> list[str]:
    """Symbols and names of the three samplers in a row."""
    elements = []
    for sampler, width in zip(COLOURS, widths, strict=True):
        elements += [mark(x, y, sampler), text(x + 11, y + 4.5, LABELS[sampler])]
        x += width
    return elements
