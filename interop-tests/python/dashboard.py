"""Draws the panels of the dashboard from a Prometheus, and makes a picture of them in headless Chromium.

Usage: dashboard.py PROMETHEUS-URL DASHBOARD-JSON PICTURE SECONDS. The queries, titles, units and places are the dashboard's; the
drawing is not Grafana's.
"""

import html
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

COLOURS = ["#1f6feb", "#d97706", "#15803d", "#b91c1c", "#7e22ce", "#0e7490", "#a16207", "#be185d"]
COLUMN, ROW, GAP = 56, 30, 8
WINDOW = "15s"


def fetch(base, path, **parameters):
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{base}/api/v1/{path}?{query}", timeout=60) as answer:
        return json.load(answer)["data"]["result"]


def expression(target):
    return target["expr"].replace("$__rate_interval", WINDOW).replace("$instance", ".*")


def name(target, labels):
    text = target.get("legendFormat") or ""
    for label, value in labels.items():
        text = text.replace("{{" + label + "}}", value)
    return text


def amount(value, unit):
    """A number in the unit of a panel."""
    if unit in ("bytes", "Bps"):
        for word in ("B", "kB", "MB", "GB"):
            if abs(value) < 1000 or word == "GB":
                return f"{value:.3g} {word}{'/s' if unit == 'Bps' else ''}"
            value /= 1000
    if unit == "s":
        days = value / 86400
        return f"{days:.3g} days" if abs(days) >= 1 else f"{value:.3g} s"
    number = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return number + ("/s" if unit == "ops" else "")


def series(base, panel, begin, end):
    for target in panel["targets"]:
        step = max(1, (end - begin) // 240)
        for found in fetch(base, "query_range", query=expression(target), start=begin, end=end, step=step):
            points = [(at, float(value)) for at, value in found["values"] if value not in ("NaN", "+Inf")]
            if points:
                yield name(target, found["metric"]), points


def plot(lines, unit, width, height, begin, end):
    left, right, top, bottom = 62, 8, 6, 18
    most = max((value for _, points in lines for _, value in points), default=0)
    least = min((value for _, points in lines for _, value in points), default=0)
    low, high = min(least, 0), most * 1.1 or 1

    def place(at, value):
        x = left + (at - begin) / (end - begin) * (width - left - right)
        y = height - bottom - (value - low) / (high - low) * (height - top - bottom)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<svg width="{width}" height="{height}">']
    for part in range(4):
        value = low + (high - low) * part / 3
        y = float(place(begin, value).split(",")[1])
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{amount(value, unit)}</text>')
    for part in range(5):
        at = begin + (end - begin) * part / 4
        x = float(place(at, low).split(",")[0])
        anchor = "end" if part == 4 else "start" if part == 0 else "middle"
        clock = time.strftime("%H:%M:%S", time.gmtime(at))
        parts.append(f'<text x="{x}" y="{height - 4}" text-anchor="{anchor}">{clock}</text>')
    for number, (_, points) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(place(at, value) for at, value in points)
        parts.append(f'<polyline points="{path}" stroke="{colour}"/>')
    return "".join(parts) + "</svg>"


def legend(lines):
    entries = []
    for number, (label, _) in enumerate(lines[:6]):
        entries.append(f'<span style="color:{COLOURS[number % len(COLOURS)]}">&#9632;</span> {html.escape(label)}')
    return " &nbsp; ".join(entries) + (" &nbsp; &hellip;" if len(lines) > 6 else "")


def draw(base, panel, begin, end):
    spot = panel["gridPos"]
    width, height = spot["w"] * COLUMN - GAP, spot["h"] * ROW - GAP
    style = f"left:{spot['x'] * COLUMN}px;top:{spot['y'] * ROW}px;width:{width}px;height:{height}px"
    title = html.escape(panel["title"])
    if panel["type"] == "row":
        return f'<h2 style="{style}">{title}</h2>'
    unit = panel["fieldConfig"]["defaults"].get("unit")
    if panel["type"] == "stat":
        found = fetch(base, "query", query=expression(panel["targets"][0]))
        value = amount(float(found[0]["value"][1]), unit) if found else "no data"
        return f'<section style="{style}"><h3>{title}</h3><b>{value}</b></section>'
    lines = sorted(series(base, panel, begin, end), key=lambda line: line[0])
    if lines:
        body = plot(lines, unit, width - 16, height - 68, begin, end) + f"<p>{legend(lines)}</p>"
    else:
        body = "<p>no data</p>"
    return f'<section style="{style}"><h3>{title}</h3>{body}</section>'


STYLE = """
body { margin: 12px; font: 12px sans-serif; background: #f3f4f6; color: #1f2937; }
main { position: relative; } section, h2 { position: absolute; box-sizing: border-box; margin: 0; }
section { background: white; border: 1px solid #d1d5db; border-radius: 4px; padding: 6px 8px; overflow: hidden; }
h2 { font-size: 14px; padding: 6px 0 0; } h3 { margin: 0 0 4px; font-size: 12px; } p { margin: 2px 0; }
b { display: block; font-size: 26px; font-weight: 600; text-align: center; padding-top: 14px; }
svg text { font: 10px sans-serif; fill: #6b7280; } .grid { stroke: #e5e7eb; }
polyline { fill: none; stroke-width: 1.5; }
"""


def main():
    base, dashboard, picture, seconds = sys.argv[1:]
    end = int(time.time())
    begin = end - int(seconds)
    panels = json.loads(pathlib.Path(dashboard).read_text())["panels"]
    # This server has no adapter for RDMA and no data nodes, so these rows, the last ones, are left out.
    rdma = next((panel["gridPos"]["y"] for panel in panels if panel["title"] == "RDMA"), None)
    panels = [panel for panel in panels if rdma is None or panel["gridPos"]["y"] < rdma]
    body = "".join(draw(base, panel, begin, end) for panel in panels)
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * ROW + 24
    page = f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><main>{body}</main>"
    with tempfile.TemporaryDirectory() as place:
        file = pathlib.Path(place, "page.html")
        file.write_text(page)
        arguments = [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={place}/data",
            f"--window-size={24 * COLUMN + 24},{height}", f"--screenshot={picture}", file.as_uri(),
        ]
        subprocess.run(arguments, check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


main()
